"""An input that the two sides hold in different layouts."""

from typing import Any, NamedTuple


class Pair(NamedTuple):
    """One input, as each side takes it: an image as NHWC and as NCHW, say.

    Attributes:
      port: what the port is given.
      reference: what the reference is given.
    """

    port: Any
    reference: Any
