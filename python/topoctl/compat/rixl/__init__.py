"""NIXL's name on ROCm: the same as nixl."""

from nixl import *
