/* What _replaced.c offers to the module of which it is part. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

PyObject *records_of(PyObject *module, PyObject *replaces);
PyObject *stand_alone(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *replaced_links(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *put_in_place(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* Slots of the objects of lanes.py, found where such an object is met. */
enum { LANE_RUNS, LANE_START, LANE_DEPTH, LANE_LOWER, LANE_REMOVED, LANE_RANK, LANE_SLOTS };
enum { QUEUE_LANES, QUEUE_DEPTH, QUEUE_SLOTS };

PyObject **slot_of_lane(PyObject *lane, int which);
PyObject **slot_of_queue(PyObject *queue, int which);

extern const char records_of_doc[], stand_alone_doc[], replaced_links_doc[], put_in_place_doc[];
