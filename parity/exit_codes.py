"""What the exit code of ``parity`` says."""

PASSED = 0
DIFFERENCE = 1
TROUBLE = 2  # usage, environment, or an unexpected exception
NOTHING_COMPARED = 3
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
BROKEN_PIPE = 141  # 128 + SIGPIPE: nobody read to the end
TERMINATED = 143  # 128 + SIGTERM
