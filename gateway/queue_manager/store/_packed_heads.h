/* What _packed_heads.c and _head_numbers.c offer to each other and to the module of which they are part. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

extern PyTypeObject packing_type;
PyObject *unpack_heads(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* How many values the packed column says it has; -1 with an error set when that cannot be, or when the values are longer
   than `most` together. */
Py_ssize_t packed_count(const Py_buffer *packed, Py_ssize_t most);
/* Calls `take` with each value of a packed column; its bytes are valid until `take` returns. -1 with an error set: the
   column is damaged, or `take` returned -1. */
int each_packed(const Py_buffer *packed, int (*take)(void *context, const unsigned char *text, Py_ssize_t length),
                void *context);
int add_head_numbers_type(PyObject *module);
uint64_t hash_of(uint64_t seed, const unsigned char *at, size_t length);

/* Asks for memory that is read soon, where the compiler knows how; never an error, whatever the address. */
#if defined(__GNUC__)
#define prefetch(at) __builtin_prefetch(at)
#else
#define prefetch(at) ((void)(at))
#endif

extern const char unpack_heads_doc[];
