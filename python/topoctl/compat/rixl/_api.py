"""nixl._api by its name on ROCm."""

from nixl._api import *
