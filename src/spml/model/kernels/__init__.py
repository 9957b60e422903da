"""GPU kernels behind one function."""
