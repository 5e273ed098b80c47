/*
 * The parts of messages, cut and joined for a whole chunk: payloads out of bodies, headers out of heads and bodies.
 *
 * message_parts.py does the same with Arrow's functions, in four passes over the bytes instead of one; it is what runs
 * where there was no compiler at installation, or executors have the file for --py-files alone. The tests compare both.
 * Columns come as Arrow has them, bounds of 32 bits and bytes, and go out so. Nothing is kept.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

/* A column of byte strings. */
typedef struct {
    const int32_t *bounds;
    const char *data;
    Py_ssize_t count;
} column;

/* A column whose bounds ascend and stay within the data; -1 for one that is none. */
static int column_of(const Py_buffer *bounds, const Py_buffer *data, column *found)
{
    found->bounds = bounds->buf;
    found->data = data->buf;
    found->count = bounds->len / 4 - 1;
    int good = bounds->len % 4 == 0 && found->count >= 0 && found->bounds[0] >= 0
               && found->bounds[found->count] <= data->len;
    for (Py_ssize_t at = 0; good && at < found->count; at++) good = found->bounds[at] <= found->bounds[at + 1];
    if (!good) PyErr_SetString(PyExc_ValueError, "the bounds of a column ascend within its data");
    return good ? 0 : -1;
}

/* How many of the first bytes of a body belong to its headers. */
static inline int64_t tail_of(const column *bodies, const int64_t *skips, Py_ssize_t row)
{
    int64_t length = bodies->bounds[row + 1] - bodies->bounds[row];
    return skips[row] < length ? skips[row] : length;
}

static int one_skip_a_row(const Py_buffer *skips, const column *bodies)
{
    const int64_t *each = skips->buf;
    int good = skips->len == 8 * bodies->count;
    for (Py_ssize_t row = 0; good && row < bodies->count; row++) good = each[row] >= 0;
    if (!good) PyErr_SetString(PyExc_ValueError, "each body has a number of bytes to skip");
    return good ? 0 : -1;
}

static inline int number_or_blank(char letter)
{
    return (letter >= '0' && letter <= '9') || letter == ' ';
}

/* Whether the end of headers has nothing but the packet identifier. */
static int only_packet_id(const char *tail, int64_t length)
{
    static const char close[] = "</msgId></mqtt>";
    const int64_t closes = sizeof close - 1;
    int64_t at = 0;
    while (at < length && number_or_blank(tail[at])) at++;
    if (length - at < closes || memcmp(tail + at, close, (size_t)closes) != 0) return 0;
    for (at += closes; at < length; at++)
        if (!number_or_blank(tail[at])) return 0;
    return 1;
}

/* The bounds and the room for a column of so many bytes, as a tuple; NULL when there is no memory. */
static PyObject *new_column(Py_ssize_t count, int64_t size, int32_t **bounds, char **data)
{
    if (size > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a column of over 2 GiB");
        return NULL;
    }
    PyObject *first = PyBytes_FromStringAndSize(NULL, 4 * (count + 1));
    PyObject *second = first == NULL ? NULL : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    PyObject *made = second == NULL ? NULL : PyTuple_Pack(2, first, second);
    if (made != NULL) {
        *bounds = (int32_t *)PyBytes_AS_STRING(first);
        *data = PyBytes_AS_STRING(second);
    }
    Py_XDECREF(first);
    Py_XDECREF(second);
    return made;
}

PyDoc_STRVAR(payloads_doc,
"payloads(bounds, data, skips, /) -> (bytes, bytes) | None\n\n"
"The bodies without the bytes to skip; None where these are anything but the packet identifier.");

static PyObject *payloads(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer bounds, data, skips;
    if (!PyArg_ParseTuple(args, "y*y*y*", &bounds, &data, &skips)) return NULL;
    column bodies;
    PyObject *made = NULL;
    if (column_of(&bounds, &data, &bodies) < 0 || one_skip_a_row(&skips, &bodies) < 0) goto end;
    int64_t size = 0;
    for (Py_ssize_t row = 0; row < bodies.count; row++) {
        int64_t tail = tail_of(&bodies, skips.buf, row);
        if (((const int64_t *)skips.buf)[row] && !only_packet_id(bodies.data + bodies.bounds[row], tail)) {
            made = Py_NewRef(Py_None);
            goto end;
        }
        size += bodies.bounds[row + 1] - bodies.bounds[row] - tail;
    }
    int32_t *ends;
    char *to;
    made = new_column(bodies.count, size, &ends, &to);
    if (made == NULL) goto end;
    int32_t at = ends[0] = 0;
    for (Py_ssize_t row = 0; row < bodies.count; row++) {
        int64_t tail = tail_of(&bodies, skips.buf, row);
        int32_t length = (int32_t)(bodies.bounds[row + 1] - bodies.bounds[row] - tail);
        memcpy(to + at, bodies.data + bodies.bounds[row] + tail, (size_t)length);
        ends[row + 1] = at += length;
    }
end:
    PyBuffer_Release(&bounds);
    PyBuffer_Release(&data);
    PyBuffer_Release(&skips);
    return made;
}

PyDoc_STRVAR(headers_doc,
"headers(head_bounds, head_data, head_of, bounds, data, skips, /) -> (bytes, bytes)\n\n"
"The head of each row, by its number, with the bytes to skip of its body after it.");

static PyObject *headers(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer head_bounds, head_data, head_of, bounds, data, skips;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*", &head_bounds, &head_data, &head_of, &bounds, &data, &skips)) return NULL;
    column heads, bodies;
    PyObject *made = NULL;
    if (column_of(&head_bounds, &head_data, &heads) < 0 || column_of(&bounds, &data, &bodies) < 0
        || one_skip_a_row(&skips, &bodies) < 0)
        goto end;
    const int32_t *number = head_of.buf;
    int64_t size = 0;
    int good = head_of.len == 4 * bodies.count;
    for (Py_ssize_t row = 0; good && row < bodies.count; row++) {
        good = number[row] >= 0 && number[row] < heads.count;
        if (good)
            size += heads.bounds[number[row] + 1] - heads.bounds[number[row]] + tail_of(&bodies, skips.buf, row);
    }
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "each body has the number of a head");
        goto end;
    }
    int32_t *ends;
    char *to;
    made = new_column(bodies.count, size, &ends, &to);
    if (made == NULL) goto end;
    int32_t at = ends[0] = 0;
    for (Py_ssize_t row = 0; row < bodies.count; row++) {
        int32_t begin = heads.bounds[number[row]], length = heads.bounds[number[row] + 1] - begin;
        int32_t tail = (int32_t)tail_of(&bodies, skips.buf, row);
        memcpy(to + at, heads.data + begin, (size_t)length);
        memcpy(to + at + length, bodies.data + bodies.bounds[row], (size_t)tail);
        ends[row + 1] = at += length + tail;
    }
end:
    PyBuffer_Release(&head_bounds);
    PyBuffer_Release(&head_data);
    PyBuffer_Release(&head_of);
    PyBuffer_Release(&bounds);
    PyBuffer_Release(&data);
    PyBuffer_Release(&skips);
    return made;
}

static PyMethodDef methods[] = {
    {"payloads", payloads, METH_VARARGS, payloads_doc},
    {"headers", headers, METH_VARARGS, headers_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.pipeline.decode._parts", "Parts of messages; see the source.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__parts(void)
{
    if (check_sources() < 0) return NULL;
    return PyModule_Create(&module);
}
