"""A Python that has loaded what is large, and forks for each `python -m parity`: it saves seconds.

    python warm.py MODULE...

takes lines of JSON, a folder and the command's arguments, and answers with an exit code and what
was written. Nothing of the folder is loaded before the fork, and no thread is started.
"""

import gc
import importlib
import json
import os
import runpy
import sys
from pathlib import Path


def answer(folder: str, arguments: list[str]) -> dict[str, int | str]:
    """Run the command in a process of its own."""
    files = {name: Path(folder, f"{name}.txt") for name in ("stdout", "stderr")}
    child = os.fork()
    if not child:
        become(folder, arguments, files)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"code": code} | {name: file.read_text() for name, file in files.items()}


def become(folder: str, arguments: list[str], files: dict[str, Path]) -> None:
    """Be `python -m parity` in this folder; does not return."""
    os.chdir(folder)
    for number, file in enumerate(files.values(), start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.path[0] = folder
    sys.argv = ["parity", *arguments]
    runpy.run_module("parity", run_name="__main__", alter_sys=True)
    sys.exit()


def main() -> None:
    """Load, then answer until nobody asks."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()  # what is loaded stays: no child goes through it again
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(*json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
