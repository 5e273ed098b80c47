/* What _replaced.c offers to the module of which it is part. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

PyObject *records_of(PyObject *module, PyObject *replaces);
PyObject *stand_alone(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *replaced_links(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *put_in_place(PyObject *module, PyObject *const *args, Py_ssize_t count);

extern const char records_of_doc[], stand_alone_doc[], replaced_links_doc[], put_in_place_doc[];
