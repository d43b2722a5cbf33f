"""The C API through a foreign-function interface: opens a model and prints its layers. Usage: run.py libnnc.so MODEL"""
import ctypes
import sys

nnc = ctypes.CDLL(sys.argv[1])
for f in ("nnc_version", "nnc_text_str"):
    getattr(nnc, f).restype = ctypes.c_char_p
for f in ("nnc_sink_create", "nnc_text_create", "nnc_model_open", "nnc_open_options_create"):
    getattr(nnc, f).restype = ctypes.c_void_p
handle = ctypes.c_void_p

sink, text = handle(nnc.nnc_sink_create()), handle(nnc.nnc_text_create())
options = handle(nnc.nnc_open_options_create())
status = nnc.nnc_open_options_set(options, b"seed", b"1", sink)
model = handle(nnc.nnc_model_open(sys.argv[2].encode(), options, sink)) if status == 0 else None
if model:
    status = nnc.nnc_report_show(model, 0, text)
    nnc.nnc_model_close(model)
else:
    nnc.nnc_sink_put(sink, text)
    status = 3
print("nnc", nnc.nnc_version().decode())
print(nnc.nnc_text_str(text).decode(), end="")
nnc.nnc_open_options_destroy(options)
nnc.nnc_text_destroy(text)
nnc.nnc_sink_destroy(sink)
sys.exit(nnc.nnc_exit_code(status))
