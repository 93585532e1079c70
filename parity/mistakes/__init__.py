"""Known mistakes of ports, each as another answer to a call of the reference in PyTorch."""
