/*
 * The loops over the rows of a batch: what the store does for each message rather than for each batch.
 *
 * rows.py has the same functions in Python, which run where there was no compiler at installation; the tests compare the
 * two. Nothing here knows files, and but for _lanes.h nothing knows lanes; nothing is kept from one call to the next.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_packed_heads.h"
#include "_replaced.h"
#include "_lanes.h"
#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

PyDoc_STRVAR(messages_doc,
"messages(cls, heads, bodies, token, time, /) -> list\n\n"
"A message of each row: cls((token, head, body, time, 0, 0)), with tokens that count up. cls is a named tuple of six.");

static PyObject *messages(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 5 || !PyType_Check(args[0]) || !PyList_Check(args[1]) || !PyList_Check(args[2])
        || !PyType_IsSubtype((PyTypeObject *)args[0], &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "messages(cls, heads, bodies, token, time)");
        return NULL;
    }
    PyTypeObject *type = (PyTypeObject *)args[0];
    PyObject *heads = args[1], *bodies = args[2];
    unsigned long long token = PyLong_AsUnsignedLongLong(args[3]);
    if (token == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
    Py_ssize_t rows = PyList_GET_SIZE(heads);
    if (rows != PyList_GET_SIZE(bodies)) {
        PyErr_SetString(PyExc_ValueError, "as many heads as bodies");
        return NULL;
    }
    PyObject *zero = PyLong_FromLong(0), *found = zero == NULL ? NULL : PyList_New(rows);
    for (Py_ssize_t row = 0; found != NULL && row < rows; row++) {
        PyObject *number = PyLong_FromUnsignedLongLong(token + (unsigned long long)row);
        /* An allocation may run the collector, and that may run anything: the lists are looked at anew. */
        PyObject *made = number == NULL ? NULL : type->tp_alloc(type, 6);
        if (made == NULL || row >= PyList_GET_SIZE(heads) || row >= PyList_GET_SIZE(bodies)) {
            if (made != NULL) PyErr_SetString(PyExc_RuntimeError, "a column has changed");
            Py_XDECREF(number);
            Py_XDECREF(made);
            Py_CLEAR(found);
            break;
        }
        PyTuple_SET_ITEM(made, 0, number);
        PyTuple_SET_ITEM(made, 1, Py_NewRef(PyList_GET_ITEM(heads, row)));
        PyTuple_SET_ITEM(made, 2, Py_NewRef(PyList_GET_ITEM(bodies, row)));
        PyTuple_SET_ITEM(made, 3, Py_NewRef(args[4]));
        PyTuple_SET_ITEM(made, 4, Py_NewRef(zero));
        PyTuple_SET_ITEM(made, 5, Py_NewRef(zero));
        PyList_SET_ITEM(found, row, made);
    }
    Py_XDECREF(zero);
    return found;
}

PyDoc_STRVAR(one_run_doc,
"one_run(tokens, /) -> bool\n\nWhether the list holds numbers that count up by one, and at least one.");

static PyObject *one_run(PyObject *module, PyObject *tokens)
{
    (void)module;
    if (!PyList_Check(tokens)) {
        PyErr_SetString(PyExc_TypeError, "one_run(list)");
        return NULL;
    }
    unsigned long long expected = 0;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(tokens); at++) {
        PyObject *one = PyList_GET_ITEM(tokens, at);
        if (!PyLong_CheckExact(one)) Py_RETURN_FALSE;
        unsigned long long token = PyLong_AsUnsignedLongLong(one);
        if (token == (unsigned long long)-1 && PyErr_Occurred()) {
            PyErr_Clear();
            Py_RETURN_FALSE;
        }
        if (at > 0 && token != expected) Py_RETURN_FALSE;
        expected = token + 1;
    }
    return PyBool_FromLong(PyList_GET_SIZE(tokens) > 0);
}

PyDoc_STRVAR(extent_doc,
"extent(values, /) -> (int, int)\n\nThe bytes of all values of a sequence together, and those of the longest.");

static PyObject *extent(PyObject *module, PyObject *values)
{
    (void)module;
    PyObject *column = PySequence_Fast(values, "extent(sequence)");
    if (column == NULL) return NULL;
    Py_ssize_t sum = 0, longest = 0;
    for (Py_ssize_t row = 0; row < PySequence_Fast_GET_SIZE(column); row++) {
        PyObject *one = PySequence_Fast_GET_ITEM(column, row);
        if (!PyBytes_Check(one)) {
            PyErr_SetString(PyExc_TypeError, "extent(sequence of bytes)");
            Py_DECREF(column);
            return NULL;
        }
        Py_ssize_t length = PyBytes_GET_SIZE(one);
        sum += length;
        if (length > longest) longest = length;
    }
    Py_DECREF(column);
    return Py_BuildValue("nn", sum, longest);
}

PyDoc_STRVAR(repeats_doc, "repeats(values, /) -> bool\n\nWhether the list holds an object twice.");

static PyObject *repeats(PyObject *module, PyObject *values)
{
    (void)module;
    if (!PyList_Check(values)) {
        PyErr_SetString(PyExc_TypeError, "repeats(list)");
        return NULL;
    }
    size_t size = 16;
    while (size < 2 * (size_t)PyList_GET_SIZE(values)) size *= 2;
    PyObject **seen = PyMem_Calloc(size, sizeof *seen);
    if (seen == NULL) return PyErr_NoMemory();
    int found = 0;
    for (Py_ssize_t row = 0; row < PyList_GET_SIZE(values) && !found; row++) {
        PyObject *one = PyList_GET_ITEM(values, row);
        size_t at = ((uintptr_t)one >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20 & (size - 1);
        while (seen[at] != NULL && seen[at] != one) at = (at + 1) & (size - 1);
        found = seen[at] == one;
        seen[at] = one;
    }
    PyMem_Free(seen);
    return PyBool_FromLong(found);
}

PyDoc_STRVAR(offsets_doc,
"offsets(values, /) -> bytes or None\n\n"
"Where each of the byte strings begins if they lie back to back, and where the last one ends: little-endian numbers\n"
"of 32 bits. None: they do not fit 31 bits.");

static PyObject *offsets(PyObject *module, PyObject *values)
{
    (void)module;
    if (!PyList_Check(values)) {
        PyErr_SetString(PyExc_TypeError, "offsets(list)");
        return NULL;
    }
    Py_ssize_t rows = PyList_GET_SIZE(values);
    PyObject *made = PyBytes_FromStringAndSize(NULL, 4 * (rows + 1));
    if (made == NULL) return NULL;
    unsigned char *out = (unsigned char *)PyBytes_AS_STRING(made);
    uint64_t total = 0;
    for (Py_ssize_t row = 0;; row++) {
        *out++ = total & 0xFF; *out++ = total >> 8 & 0xFF; *out++ = total >> 16 & 0xFF; *out++ = total >> 24 & 0xFF;
        if (row == rows) return made;
        PyObject *one = PyList_GET_ITEM(values, row);
        if (!PyBytes_Check(one)) {
            Py_DECREF(made);
            PyErr_SetString(PyExc_TypeError, "offsets(list of bytes)");
            return NULL;
        }
        total += (uint64_t)PyBytes_GET_SIZE(one);
        if (total >= UINT64_C(1) << 31) {
            Py_DECREF(made);
            Py_RETURN_NONE;
        }
    }
}

PyDoc_STRVAR(same_doc, "same(values, /) -> bool\n\nWhether the list holds one object alone, at least once.");

static PyObject *same(PyObject *module, PyObject *values)
{
    (void)module;
    if (!PyList_Check(values)) {
        PyErr_SetString(PyExc_TypeError, "same(list)");
        return NULL;
    }
    Py_ssize_t rows = PyList_GET_SIZE(values);
    for (Py_ssize_t row = 1; row < rows; row++)
        if (PyList_GET_ITEM(values, row) != PyList_GET_ITEM(values, 0)) Py_RETURN_FALSE;
    return PyBool_FromLong(rows > 0);
}

PyDoc_STRVAR(agree_doc,
"agree(values, at, wanted, /) -> bool\n\nWhether all byte strings of a list have the bytes `wanted` from `at` on.");

static PyObject *agree(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyList_Check(args[0]) || !PyBytes_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "agree(list, int, bytes)");
        return NULL;
    }
    PyObject *values = args[0], *before = NULL;
    const char *wanted = PyBytes_AS_STRING(args[2]);
    Py_ssize_t at = PyLong_AsSsize_t(args[1]), length = PyBytes_GET_SIZE(args[2]);
    if (at == -1 && PyErr_Occurred()) return NULL;
    if (at < 0) {
        PyErr_SetString(PyExc_ValueError, "a place is not negative");
        return NULL;
    }
    for (Py_ssize_t row = 0; row < PyList_GET_SIZE(values); row++) {
        PyObject *one = PyList_GET_ITEM(values, row);
        if (one == before) continue;
        if (!PyBytes_Check(one)) {
            PyErr_SetString(PyExc_TypeError, "agree(list of bytes)");
            return NULL;
        }
        if (PyBytes_GET_SIZE(one) - length < at || memcmp(PyBytes_AS_STRING(one) + at, wanted, (size_t)length) != 0)
            Py_RETURN_FALSE;
        before = one;
    }
    Py_RETURN_TRUE;
}

/* -- sections (kind, form, content) of a frame; a content is bytes, or a list of bytes that lie there back to back -- */

/* The length of a content; -1 with an error set. */
static Py_ssize_t content_length(PyObject *content)
{
    if (PyBytes_Check(content)) return PyBytes_GET_SIZE(content);
    if (!PyList_Check(content)) goto wrong;
    Py_ssize_t sum = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(content); i++) {
        PyObject *part = PyList_GET_ITEM(content, i);
        if (!PyBytes_Check(part)) goto wrong;
        sum += PyBytes_GET_SIZE(part);
    }
    return sum;
wrong:
    PyErr_SetString(PyExc_TypeError, "a content is bytes, or a list of bytes");
    return -1;
}

/* How long sections are as they lie in a frame; -1 with an error set. Every section is looked at before it is used. */
static Py_ssize_t laid_length_of(PyObject *sections)
{
    if (!PyList_Check(sections)) {
        PyErr_SetString(PyExc_TypeError, "sections are a list");
        return -1;
    }
    Py_ssize_t sum = 8 * PyList_GET_SIZE(sections);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sections); i++) {
        PyObject *one = PyList_GET_ITEM(sections, i);
        if (!PyTuple_Check(one) || PyTuple_GET_SIZE(one) != 3 || !PyLong_Check(PyTuple_GET_ITEM(one, 0)) ||
            !PyLong_Check(PyTuple_GET_ITEM(one, 1))) {
            PyErr_SetString(PyExc_TypeError, "a section is (int, int, content)");
            return -1;
        }
        Py_ssize_t length = content_length(PyTuple_GET_ITEM(one, 2));
        if (length < 0) return -1;
        sum += (length + 7) & ~(Py_ssize_t)7;
    }
    return sum;
}

PyDoc_STRVAR(laid_length_doc, "laid_length(sections, /) -> int\n\nHow many bytes lay_out() writes.");

static PyObject *laid_length(PyObject *module, PyObject *sections)
{
    (void)module;
    Py_ssize_t length = laid_length_of(sections);
    return length < 0 ? NULL : PyLong_FromSsize_t(length);
}

/* Write the content of a section; where it ends. */
static unsigned char *write_content(unsigned char *at, PyObject *content)
{
    if (PyBytes_Check(content)) {
        memcpy(at, PyBytes_AS_STRING(content), (size_t)PyBytes_GET_SIZE(content));
        return at + PyBytes_GET_SIZE(content);
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(content); i++) at = write_content(at, PyList_GET_ITEM(content, i));
    return at;
}

/* Write sections that have been looked at. -1: an error is set. */
static int write_sections(PyObject *sections, unsigned char *head)
{
    unsigned char *at = head + 8 * PyList_GET_SIZE(sections);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sections); i++) {
        PyObject *one = PyList_GET_ITEM(sections, i);
        unsigned long kind = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(one, 0));
        unsigned long form = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(one, 1));
        unsigned char *end = write_content(at, PyTuple_GET_ITEM(one, 2));
        size_t length = (size_t)(end - at), padding = -length & 7;
        if (PyErr_Occurred() || kind > 0xFFFF || form > 0xFFFF || length > UINT32_MAX) {
            PyErr_Clear();
            PyErr_SetString(PyExc_ValueError, "kinds and forms have 16 bits, lengths 32");
            return -1;
        }
        *head++ = kind & 0xFF; *head++ = kind >> 8 & 0xFF; *head++ = form & 0xFF; *head++ = form >> 8 & 0xFF;
        for (int n = 0; n < 4; n++) *head++ = length >> 8 * n & 0xFF;
        memset(end, 0, padding);
        at = end + padding;
    }
    return 0;
}

PyDoc_STRVAR(lay_out_doc,
"lay_out(sections, buffer, /) -> None\n\n"
"Write sections (kind, form, content) as they lie in a frame, which fill the buffer: kind and form in 16 bits and the length in\n"
"32, for each; then the contents, each padded with NULs to a multiple of 8.");

static PyObject *lay_out(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *sections;
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "Ow*", &sections, &buffer)) return NULL;
    Py_ssize_t length = laid_length_of(sections);
    int failed = length < 0;
    if (!failed && length != buffer.len) {
        PyErr_SetString(PyExc_ValueError, "the sections do not fill the buffer");
        failed = 1;
    }
    if (!failed) failed = write_sections(sections, buffer.buf) < 0;
    PyBuffer_Release(&buffer);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(dictionary_doc,
"dictionary(values, /) -> (list, int, bytes)\n\n"
"Each distinct byte string once, in the order of their first appearance; and the number of each row's among them, in 1, 2\n"
"or 4 bytes, little-endian, as few as will do.");

/* The numbers in as few bytes as `distinct` asks for. */
static PyObject *narrowed(const uint32_t *numbers, Py_ssize_t rows, Py_ssize_t distinct, int *width)
{
    *width = distinct <= 1 << 8 ? 1 : distinct <= 1 << 16 ? 2 : 4;
    PyObject *made = PyBytes_FromStringAndSize(NULL, *width * rows);
    if (made == NULL) return NULL;
    unsigned char *out = (unsigned char *)PyBytes_AS_STRING(made);
    for (Py_ssize_t row = 0; row < rows; row++)
        for (int n = 0; n < *width; n++) *out++ = (unsigned char)(numbers[row] >> 8 * n);
    return made;
}

static int equal(PyObject *one, PyObject *other)
{
    return one == other || (PyBytes_GET_SIZE(one) == PyBytes_GET_SIZE(other)
                            && memcmp(PyBytes_AS_STRING(one), PyBytes_AS_STRING(other), (size_t)PyBytes_GET_SIZE(one)) == 0);
}

static uint64_t seed; /* of the hashes of this process */

/* The hash that Python keeps with the object; -1: nobody has asked for it. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
static inline Py_hash_t kept_hash(PyObject *one) { return ((PyBytesObject *)one)->ob_shash; }
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/*
 * Whether a value that Python has not hashed is held by nobody but the list: a head that was made for one message. To have
 * it hashed takes Python five times as long as us; of others it keeps the hash, for when they come again.
 */
static int has_new(PyObject *values)
{
    for (Py_ssize_t row = 0; row < PyList_GET_SIZE(values); row++) {
        PyObject *one = PyList_GET_ITEM(values, row);
        if (Py_REFCNT(one) == 1 && PyBytes_CheckExact(one) && kept_hash(one) == -1) return 1;
    }
    return 0;
}

/* Fills `numbers`; `slots`, all 0, are numbers plus one by hash, `mask` one less than their power of two. */
static int number_rows(PyObject *values, PyObject *distinct, uint32_t *numbers, uint32_t *slots, size_t mask)
{
    int is_new = has_new(values);
    for (Py_ssize_t row = 0; row < PyList_GET_SIZE(values); row++) {
        PyObject *one = PyList_GET_ITEM(values, row);
        if (!PyBytes_CheckExact(one)) {
            PyErr_SetString(PyExc_TypeError, "dictionary(list of bytes)");
            return -1;
        }
        if (row > 0 && one == PyList_GET_ITEM(values, row - 1)) {
            numbers[row] = numbers[row - 1];
            continue;
        }
        const unsigned char *text = (const unsigned char *)PyBytes_AS_STRING(one);
        size_t at = mask & (is_new ? (size_t)hash_of(seed, text, (size_t)PyBytes_GET_SIZE(one)) : (size_t)PyObject_Hash(one));
        while (slots[at] != 0 && !equal(PyList_GET_ITEM(distinct, slots[at] - 1), one)) at = (at + 1) & mask;
        if (slots[at] == 0) {
            if (PyList_Append(distinct, one) < 0) return -1;
            slots[at] = (uint32_t)PyList_GET_SIZE(distinct);
        }
        numbers[row] = slots[at] - 1;
    }
    return 0;
}

static PyObject *dictionary(PyObject *module, PyObject *values)
{
    (void)module;
    if (!PyList_Check(values) || PyList_GET_SIZE(values) > 1 << 30) {
        PyErr_SetString(PyExc_TypeError, "dictionary(list)");
        return NULL;
    }
    Py_ssize_t rows = PyList_GET_SIZE(values);
    size_t size = 16;
    while (size < 2 * (size_t)rows) size *= 2;
    uint32_t *slots = PyMem_Calloc(size + (size_t)rows, sizeof *slots);
    PyObject *distinct = PyList_New(0), *index = NULL, *found = NULL;
    int width;
    if (slots == NULL) PyErr_NoMemory();
    else if (distinct != NULL && number_rows(values, distinct, slots + size, slots, size - 1) == 0 &&
             (index = narrowed(slots + size, rows, PyList_GET_SIZE(distinct), &width)) != NULL)
        found = Py_BuildValue("OiO", distinct, width, index);
    PyMem_Free(slots);
    Py_XDECREF(distinct);
    Py_XDECREF(index);
    return found;
}

PyDoc_STRVAR(runs_doc,
"runs(one, other, /) -> list of (object, object, int)\n\n"
"What two lists of the same length have in rows that follow one another with the same two objects, and how many these are.");

static PyObject *runs(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 2 || !PyList_Check(args[0]) || !PyList_Check(args[1]) || PyList_GET_SIZE(args[0]) != PyList_GET_SIZE(args[1])) {
        PyErr_SetString(PyExc_ValueError, "runs(list, list), of the same length");
        return NULL;
    }
    PyObject *found = PyList_New(0);
    Py_ssize_t first = 0, rows = PyList_GET_SIZE(args[0]);
    for (Py_ssize_t row = 1; found != NULL && row <= rows; row++) {
        PyObject *one = PyList_GET_ITEM(args[0], first), *other = PyList_GET_ITEM(args[1], first);
        if (row < rows && PyList_GET_ITEM(args[0], row) == one && PyList_GET_ITEM(args[1], row) == other) continue;
        PyObject *run = Py_BuildValue("OOn", one, other, row - first);
        if (run == NULL || PyList_Append(found, run) < 0) Py_CLEAR(found);
        Py_XDECREF(run);
        first = row;
    }
    return found;
}

static PyMethodDef methods[] = {
    {"messages", (PyCFunction)(void (*)(void))messages, METH_FASTCALL, messages_doc},
    {"one_run", one_run, METH_O, one_run_doc},
    {"extent", extent, METH_O, extent_doc},
    {"repeats", repeats, METH_O, repeats_doc},
    {"offsets", offsets, METH_O, offsets_doc},
    {"same", same, METH_O, same_doc},
    {"agree", (PyCFunction)(void (*)(void))agree, METH_FASTCALL, agree_doc},
    {"laid_length", laid_length, METH_O, laid_length_doc},
    {"lay_out", lay_out, METH_VARARGS, lay_out_doc},
    {"runs", (PyCFunction)(void (*)(void))runs, METH_FASTCALL, runs_doc},
    {"dictionary", dictionary, METH_O, dictionary_doc},
    {"records_of", records_of, METH_O, records_of_doc},
    {"stand_alone", (PyCFunction)(void (*)(void))stand_alone, METH_FASTCALL, stand_alone_doc},
    {"links", (PyCFunction)(void (*)(void))replaced_links, METH_FASTCALL, replaced_links_doc},
    {"put_in_place", (PyCFunction)(void (*)(void))put_in_place, METH_FASTCALL, put_in_place_doc},
    {"append", (PyCFunction)(void (*)(void))append, METH_FASTCALL, append_doc},
    {"depths", (PyCFunction)(void (*)(void))depths, METH_FASTCALL, depths_doc},
    {"unpack", (PyCFunction)(void (*)(void))unpack_heads, METH_FASTCALL, unpack_heads_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.queue_manager.store._rows", "Columns row by row; see the source.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__rows(void)
{
    if (check_sources() < 0 || name_attributes() < 0) return NULL;
    seed = (uint64_t)PyObject_Hash(s_frombytes) ^ (uint64_t)(uintptr_t)&seed;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && (add_head_numbers_type(made) < 0 || PyModule_AddType(made, &packing_type) < 0)) Py_CLEAR(made);
    return made;
}
