"""GPU kernels of the backbone; `fused.our_kernels` is the only way to use them."""
