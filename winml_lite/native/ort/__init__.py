"""ONNX Runtime through its C API. `backend.py` is the entry; importing `api.py` loads the library."""
