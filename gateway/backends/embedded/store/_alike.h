/* The functions of _alike.c, for the module of which they are part. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *alike_pack(PyObject *module, PyObject *values);
PyObject *alike_unpack(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* Reading ahead in memory, where the compiler knows how; never an error, whatever the address. */
#if defined(__GNUC__)
#define prefetch(at) __builtin_prefetch(at)
#else
#define prefetch(at) ((void)(at))
#endif

extern const char alike_pack_doc[], alike_unpack_doc[];
