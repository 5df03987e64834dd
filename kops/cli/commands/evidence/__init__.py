"""Commands of `kops evidence`: cases of collected log directories."""
