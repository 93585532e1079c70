"""What a seeded fault is: a line of a function's own module, replaced; never a case."""

from dataclasses import dataclass

PORT_OFF = "the port is off"
PORT_RAISED = "the port raised"
BITS_DIFFER = "the sides differ in bits, each within its limit"
REFERENCE_OFF = "torch is the side that is off"


@dataclass(frozen=True)
class Fault:
    """One fault, and what the suite has to say about it.

    Attributes:
      name: what is wrong, in plain words.
      file: of the copied source tree.
      right: what stands there, exactly once.
      wrong: what is put in its place.
      case: the id of the one that is run, the smallest that shows it.
      tensors: those that fail, no more and no fewer; separated by blanks.
      verdict: of each of them, in the words of the report.
      side: the one that the report holds responsible.
    """

    name: str
    file: str
    right: str
    wrong: str
    case: str
    tensors: str
    verdict: str = PORT_OFF
    side: str = "port"

    def __str__(self) -> str:
        return self.name
