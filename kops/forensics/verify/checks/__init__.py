"""The checks of `verify`.

In: facts about segments and the files beside them. Out: findings. Checks write nothing.
"""
