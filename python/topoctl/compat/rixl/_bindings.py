"""nixl._bindings by its name on ROCm."""

from nixl._bindings import *
