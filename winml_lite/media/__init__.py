"""Pictures and sound as tensors, in plain NumPy (tensors §5 and 6). The methods of `Runtime` are in the files above."""
