/*
 * Runs of publications, from the bytes of a chunk to the columns of a unit of work.
 *
 * take() reads PUBLISH packets that lie one after the other in a chunk, as long as each has the first byte given (QoS
 * 0 or 1, neither DUP nor RETAIN), no properties, a payload within the limit, and a topic whose cached route leads
 * straight to the run given. For each it appends the route's head, the body (the tail for the packet identifier, then
 * the payload) and the acknowledgement. At anything else, a packet that is not whole included, it stops: the caller
 * goes on there with Publishing.packets, which does the same and everything else, and with which the tests compare it.
 *
 * Nothing is read beyond the chunk: every length is checked against its end before it is used.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

static PyObject *s_hot, *s_seen, *s_cell, *s_run, *s_head, *s_tails;

/* What is known of the route in use. All references are held while it is. */
typedef struct {
    PyObject *head, *tails;
    const unsigned char *topic;
    Py_ssize_t topic_length;
} route;

static void forget(route *known)
{
    Py_CLEAR(known->head);
    Py_CLEAR(known->tails);
    known->topic = NULL;
}

/* 1: the route is one that may be used here; 0: it is not; -1: an error is set. */
static int usable(PyObject *found, PyObject *run)
{
    PyObject *hot = PyObject_GetAttr(found, s_hot);
    if (hot == NULL) return -1;
    long straight = PyLong_AsLong(hot);
    Py_DECREF(hot);
    if (straight != 1) return straight == -1 && PyErr_Occurred() ? -1 : 0;

    PyObject *own = PyObject_GetAttr(found, s_run);
    if (own == NULL) return -1;
    Py_DECREF(own); /* compared by identity only; the route holds it */
    if (own != run) return 0;

    PyObject *seen = PyObject_GetAttr(found, s_seen);
    PyObject *cell = seen ? PyObject_GetAttr(found, s_cell) : NULL;
    int same = -1;
    if (cell != NULL && PyList_CheckExact(cell) && PyList_GET_SIZE(cell) == 1)
        same = PyObject_RichCompareBool(seen, PyList_GET_ITEM(cell, 0), Py_EQ);
    else if (cell != NULL)
        PyErr_SetString(PyExc_TypeError, "a route's cell is a list of one number");
    Py_XDECREF(seen);
    Py_XDECREF(cell);
    return same;
}

/* Look the topic up. 1: `known` is its route now; 0: none that may be used; -1: an error is set. */
static int find(route *known, PyObject *cache, PyObject *run, const unsigned char *topic, Py_ssize_t length)
{
    forget(known);
    PyObject *key = PyBytes_FromStringAndSize((const char *)topic, length);
    if (key == NULL) return -1;
    PyObject *found = PyDict_GetItemWithError(cache, key);
    Py_DECREF(key);
    if (found == NULL) return PyErr_Occurred() ? -1 : 0;
    Py_INCREF(found);
    int good = usable(found, run);
    if (good == 1) {
        known->head = PyObject_GetAttr(found, s_head);
        known->tails = known->head ? PyObject_GetAttr(found, s_tails) : NULL;
        if (known->tails == NULL) good = -1;
        else if (!PyDict_Check(known->tails)) {
            PyErr_SetString(PyExc_TypeError, "a route's tails are a dict");
            good = -1;
        }
    }
    Py_DECREF(found);
    if (good != 1) {
        forget(known);
        return good;
    }
    known->topic = topic;
    known->topic_length = length;
    return 1;
}

/* The tail for a packet identifier: a new reference. */
static PyObject *tail_of(PyObject *tails, unsigned packet_id)
{
    PyObject *number = PyLong_FromLong((long)packet_id);
    if (number == NULL) return NULL;
    PyObject *tail = PyDict_GetItemWithError(tails, number);
    if (tail != NULL) Py_INCREF(tail);
    else if (!PyErr_Occurred()) tail = PyObject_GetItem(tails, number); /* __missing__ makes it */
    Py_DECREF(number);
    if (tail != NULL && !PyBytes_CheckExact(tail)) {
        PyErr_SetString(PyExc_TypeError, "a tail is bytes");
        Py_CLEAR(tail);
    }
    return tail;
}

static int append(route *known, unsigned packet_id, const unsigned char *payload, Py_ssize_t length, PyObject *heads,
                  PyObject *bodies)
{
    PyObject *tail = tail_of(known->tails, packet_id);
    if (tail == NULL) return -1;
    Py_ssize_t before = PyBytes_GET_SIZE(tail);
    PyObject *body = PyBytes_FromStringAndSize(NULL, before + length);
    if (body != NULL) {
        memcpy(PyBytes_AS_STRING(body), PyBytes_AS_STRING(tail), (size_t)before);
        memcpy(PyBytes_AS_STRING(body) + before, payload, (size_t)length);
    }
    Py_DECREF(tail);
    if (body == NULL) return -1;
    int failed = PyList_Append(bodies, body);
    Py_DECREF(body);
    return failed ? -1 : PyList_Append(heads, known->head);
}

/*
 * Where the frame at `at` ends, and in *start where its body begins; 0: not whole, longer than allowed, or malformed.
 * At most four bytes of remaining length, the shortest form only: the rest is for those who word the errors.
 */
static Py_ssize_t frame(const unsigned char *data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t longest, Py_ssize_t *start)
{
    Py_ssize_t length = 0, here = at + 1;
    for (int shift = 0; shift < 28; shift += 7, here++) {
        if (here >= end) return 0;
        length |= (Py_ssize_t)(data[here] & 0x7f) << shift;
        if (data[here] < 0x80) {
            if (data[here] == 0 && shift) return 0;
            *start = here + 1;
            Py_ssize_t stop = *start + length;
            return stop > end || stop - at > longest ? 0 : stop;
        }
    }
    return 0;
}

PyDoc_STRVAR(take_doc,
"take(data, offset, first, version_5, max_packet, max_payload, cache, run, heads, bodies, pubacks, replies) -> int\n\n"
"Append a run of publications to the columns; returns the offset of the first packet that is not one.");

static PyObject *take(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 12) {
        PyErr_SetString(PyExc_TypeError, "take() takes 12 arguments");
        return NULL;
    }
    Py_ssize_t at = PyLong_AsSsize_t(args[1]);
    long first = PyLong_AsLong(args[2]);
    int version_5 = PyObject_IsTrue(args[3]);
    Py_ssize_t max_packet = PyLong_AsSsize_t(args[4]), max_payload = PyLong_AsSsize_t(args[5]);
    if (PyErr_Occurred()) return NULL;
    PyObject *cache = args[6], *run = args[7], *heads = args[8], *bodies = args[9], *pubacks = args[10],
             *replies = args[11];
    if (!PyBytes_CheckExact(args[0]) || !PyDict_CheckExact(cache) || !PyList_CheckExact(heads) ||
        !PyList_CheckExact(bodies) || !PyList_CheckExact(pubacks) || !PyList_CheckExact(replies) || at < 0 ||
        (first != 0x30 && first != 0x32)) {
        PyErr_SetString(PyExc_TypeError, "take(bytes, int, 0x30 or 0x32, bool, int, int, dict, run, list, list, list, list)");
        return NULL;
    }
    const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(args[0]);
    Py_ssize_t end = PyBytes_GET_SIZE(args[0]);
    Py_ssize_t with_id = first == 0x32 ? 2 : 0;
    route known = {NULL, NULL, NULL, 0};
    int failed = 0;

    while (at + 4 <= end && data[at] == first) {
        Py_ssize_t start, stop = frame(data, at, end, max_packet, &start);
        if (stop == 0 || start + 2 > stop) break;
        Py_ssize_t topic_length = (Py_ssize_t)data[start] << 8 | data[start + 1];
        const unsigned char *topic = data + start + 2;
        Py_ssize_t mark = start + 2 + topic_length, body = mark + with_id;
        if (body > stop) break;
        if (version_5) {
            if (body == stop || data[body] != 0) break;
            body++;
        }
        unsigned packet_id = with_id ? (unsigned)data[mark] << 8 | data[mark + 1] : 0;
        if ((with_id && packet_id == 0) || stop - body > max_payload) break;
        if (known.topic == NULL || known.topic_length != topic_length || memcmp(known.topic, topic, (size_t)topic_length)) {
            int found = find(&known, cache, run, topic, topic_length);
            if (found < 0) failed = 1;
            if (found != 1) break;
        }
        if (append(&known, packet_id, data + body, stop - body, heads, bodies) < 0) {
            failed = 1;
            break;
        }
        if (with_id) {
            if ((Py_ssize_t)packet_id >= PyList_GET_SIZE(pubacks)) {
                PyErr_SetString(PyExc_TypeError, "pubacks has an entry for each packet identifier");
                failed = 1;
            } else if (PyList_Append(replies, PyList_GET_ITEM(pubacks, packet_id)) < 0)
                failed = 1;
            if (failed) break;
        }
        at = stop;
    }
    forget(&known);
    return failed ? NULL : PyLong_FromSsize_t(at);
}

PyDoc_STRVAR(topic_doc,
"topic(data, offset, max_packet) -> bytes | None\n\n"
"The topic of the PUBLISH at offset; None if that packet is not whole or not well-formed so far.");

static PyObject *topic(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *chunk;
    Py_ssize_t at, max_packet, start;
    if (!PyArg_ParseTuple(args, "Snn", &chunk, &at, &max_packet)) return NULL;
    const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(chunk);
    Py_ssize_t end = PyBytes_GET_SIZE(chunk), stop;
    if (at < 0 || at + 4 > end || (stop = frame(data, at, end, max_packet, &start)) == 0 || start + 2 > stop)
        Py_RETURN_NONE;
    Py_ssize_t length = (Py_ssize_t)data[start] << 8 | data[start + 1];
    if (start + 2 + length > stop) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)data + start + 2, length);
}

static PyMethodDef methods[] = {
    {"topic", topic, METH_VARARGS, topic_doc},
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, take_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.broker._kernel", "Runs of publications; see the source.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    struct { PyObject **where; const char *name; } names[] = {
        {&s_hot, "hot"}, {&s_seen, "seen"}, {&s_cell, "cell"}, {&s_run, "run"}, {&s_head, "head"}, {&s_tails, "tails"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((*names[i].where = PyUnicode_InternFromString(names[i].name)) == NULL) return NULL;
    return PyModule_Create(&module);
}
