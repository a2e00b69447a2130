"""The version, for those who must not import everything else."""

__version__ = "0.1.0"
