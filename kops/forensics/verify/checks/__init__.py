"""The checks of `kops log verify`: they judge facts.

In: facts about segments and the files beside them. Out: findings. Checks write nothing.
"""
