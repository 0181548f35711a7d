"""The engines, the only place with ctypes. `backend.py` is the border; nothing here knows the object model above it."""
