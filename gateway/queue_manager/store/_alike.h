/* The functions and the type of _alike.c and the type of _known.c, for the module of which they are part. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

extern PyTypeObject alike_packing;
PyObject *alike_unpack(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* How many values packed ones say they are; -1 with an error set when that cannot be, or they are longer than `most`. */
Py_ssize_t alike_count(const Py_buffer *packed, Py_ssize_t most);
/* Calls `take` with each of as many values, whose bytes are there until it returns. -1 with an error set: what was packed
   is damaged, or `take` returned -1. */
int alike_each(const Py_buffer *packed, int (*take)(void *context, const unsigned char *text, Py_ssize_t length),
               void *context);
int known_add_type(PyObject *module);

/* Reading ahead in memory, where the compiler knows how; never an error, whatever the address. */
#if defined(__GNUC__)
#define prefetch(at) __builtin_prefetch(at)
#else
#define prefetch(at) ((void)(at))
#endif

extern const char alike_unpack_doc[];
