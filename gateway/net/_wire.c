/*
 * Reading from many sockets at once, and writing to many: one call for each instead of a few for every socket.
 *
 * poll() keeps what the kernel says as it is, since nearly all of it is for receive(): no pair of numbers for each event.
 * receive() reads once each socket that a poll found readable and that has nothing to be sent, also where its peer is gone
 * by now: one that comes again behind that must not be heard before it. write() sends once to each socket. Both do the
 * usual case only. A socket of which nothing more comes, has an error, cannot take all, has bytes kept to be sent first,
 * or is not the hub's is left to the caller in Python. `wire.py` has the same functions in Python, with
 * which the tests compare these.
 *
 * The interpreter's lock is released once for all sends of a call, not for each, and where the kernel lets them be one
 * call they are (`_send_ring.h`). Reading keeps the lock: it only copies from the sockets' buffers, at most ROOM bytes in
 * a call.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <structmember.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "../built_from.h"
#include "_send_ring.h"

BUILT_FROM_THIS_FILE;

#define ROOM (512 * 1024)
#define LONGEST (64 * 1024)
#define MOST_EVENTS 512

/* Attributes of links. */
enum { CONNECTION, WRAPPING, CHUNK, DIRECT, INWARD, OUTWARD, ATTRIBUTES };
static const char *const texts[ATTRIBUTES] = {"connection", "wrapping", "chunk", "direct", "inward", "outward"};
static PyObject *names[ATTRIBUTES], *s_wrap;

/* The class of the last link, and where its instances have them; 0: in no slot. A reference is held. */
static PyTypeObject *class_of_links;
static Py_ssize_t places[ATTRIBUTES];

static void look_at_class(PyTypeObject *class)
{
    Py_XSETREF(class_of_links, (PyTypeObject *)Py_NewRef((PyObject *)class));
    for (int i = 0; i < ATTRIBUTES; i++) {
        PyObject *descriptor = PyObject_GetAttr((PyObject *)class, names[i]);
        int is_slot = descriptor != NULL && Py_IS_TYPE(descriptor, &PyMemberDescr_Type);
        PyMemberDef *member = is_slot ? ((PyMemberDescrObject *)descriptor)->d_member : NULL;
        places[i] = member != NULL && member->type == T_OBJECT_EX ? member->offset : 0;
        Py_XDECREF(descriptor);
    }
    PyErr_Clear(); /* what its class has not its instances may have */
}

/* As PyObject_GetAttr: a new reference. */
static PyObject *attribute(PyObject *link, int which)
{
    if (Py_TYPE(link) != class_of_links) look_at_class(Py_TYPE(link));
    PyObject *found = places[which] != 0 ? *(PyObject **)((char *)link + places[which]) : NULL;
    return found != NULL ? Py_NewRef(found) : PyObject_GetAttr(link, names[which]);
}

/* What was read. */
typedef struct {
    PyObject *arrived, *wrapped, *rest, *full;
} lists;

/* The attribute as a small number; -1 with an error set, as PyLong_AsLong. */
static long number_of(PyObject *link, int which)
{
    PyObject *found = attribute(link, which);
    if (found == NULL) return -1;
    long number = PyLong_AsLong(found);
    Py_DECREF(found);
    return number;
}

static int append_pair(PyObject *list, PyObject *first, PyObject *second)
{
    PyObject *pair = PyTuple_Pack(2, first, second);
    if (pair == NULL) return -1;
    int failed = PyList_Append(list, pair);
    Py_DECREF(pair);
    return failed;
}

/* What is in it for the broker, by the link's own call; None: the wrapping itself has to take it. A new reference. */
static PyObject *unwrapped(PyObject *link, PyObject *data)
{
    PyObject *inward = attribute(link, INWARD);
    if (inward == NULL) return NULL;
    PyObject *found = inward == Py_None ? Py_NewRef(Py_None) : PyObject_CallOneArg(inward, data);
    Py_DECREF(inward);
    if (found == NULL || found == Py_None || PyBytes_CheckExact(found)) return found;
    PyErr_SetString(PyExc_TypeError, "what was wrapped is bytes");
    Py_DECREF(found);
    return NULL;
}

/* Put what was read of a link in its list; `is_full`: it was as much as was to be read. */
static int sort_in(PyObject *link, PyObject *connection, PyObject *data, int is_full, const lists *to)
{
    PyObject *wrapping = attribute(link, WRAPPING);
    if (wrapping == NULL) return -1;
    PyObject *found = wrapping == Py_None ? Py_NewRef(data) : unwrapped(link, data);
    Py_DECREF(wrapping);
    if (found == NULL) return -1;
    int failed = 0;
    if (found == Py_None) {
        failed = append_pair(to->wrapped, link, data);
    } else {
        if (PyBytes_GET_SIZE(found) != 0) failed = append_pair(to->arrived, connection, found);
        if (failed == 0 && is_full) failed = PyList_Append(to->full, link);
    }
    Py_DECREF(found);
    return failed;
}

/*
 * One readable socket. 1: read, and in its list; 0: it is for the caller; -1: an error is set. Links are read here while
 * there is room for all that they may have.
 */
static int read_one(PyObject *link, int fd, Py_ssize_t *room, const lists *to)
{
    static char bytes[LONGEST]; /* filled and copied under the interpreter's lock */
    long chunk = number_of(link, CHUNK);
    if (chunk == -1 && PyErr_Occurred()) return -1;
    if (chunk < 1 || chunk > LONGEST || chunk > *room) return 0;
    PyObject *connection = attribute(link, CONNECTION);
    if (connection == NULL) return -1;
    int done = 0;
    ssize_t length = connection == Py_None ? 0 : recv(fd, bytes, (size_t)chunk, MSG_DONTWAIT);
    if (length > 0) {
        *room -= length;
        PyObject *data = PyBytes_FromStringAndSize(bytes, length);
        done = data == NULL || sort_in(link, connection, data, length == chunk, to) < 0 ? -1 : 1;
        Py_XDECREF(data);
    }
    Py_DECREF(connection);
    return done;
}

/* One event of a poll: 0 if it is dealt with, either way; -1: an error is set. */
static int take_event(PyObject *links, PyObject *number, int fd, unsigned long ready, PyObject *event, Py_ssize_t *room, const lists *to)
{
    PyObject *link = (ready & (EPOLLIN | EPOLLOUT)) == EPOLLIN ? PyDict_GetItemWithError(links, number) : NULL;
    if (link == NULL && PyErr_Occurred()) return -1;
    Py_XINCREF(link); /* its call may be anything */
    int done = link == NULL ? 0 : read_one(link, fd, room, to);
    Py_XDECREF(link);
    if (done != 0) return done < 0 ? -1 : 0;
    PyObject *rest = event != NULL ? Py_NewRef(event) : Py_BuildValue("Ok", number, ready);
    int failed = rest == NULL ? -1 : PyList_Append(to->rest, rest);
    Py_XDECREF(rest);
    return failed;
}

/* Events as poll() has them. */
static int take_polled(PyObject *links, PyObject *events, Py_ssize_t *room, const lists *to)
{
    Py_ssize_t length = PyBytes_GET_SIZE(events), size = sizeof(struct epoll_event);
    if (length % size != 0) {
        PyErr_SetString(PyExc_ValueError, "events are those of poll()");
        return -1;
    }
    for (Py_ssize_t at = 0; at < length; at += size) {
        struct epoll_event event;
        memcpy(&event, PyBytes_AS_STRING(events) + at, sizeof event);
        PyObject *number = PyLong_FromLong(event.data.fd);
        int failed = number == NULL ? -1 : take_event(links, number, event.data.fd, event.events, NULL, room, to);
        Py_XDECREF(number);
        if (failed < 0) return -1;
    }
    return 0;
}

/* Events as Python has them. */
static int take_pairs(PyObject *links, PyObject *events, Py_ssize_t *room, const lists *to)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(events); at++) {
        PyObject *event = PyList_GET_ITEM(events, at);
        if (!PyTuple_CheckExact(event) || PyTuple_GET_SIZE(event) != 2) {
            PyErr_SetString(PyExc_TypeError, "an event is a descriptor and what it is ready for");
            return -1;
        }
        PyObject *number = PyTuple_GET_ITEM(event, 0);
        long fd = PyLong_AsLong(number), ready = PyLong_AsLong(PyTuple_GET_ITEM(event, 1));
        if ((fd == -1 || ready == -1) && PyErr_Occurred()) return -1;
        if (take_event(links, number, (int)fd, (unsigned long)ready, event, room, to) < 0) return -1;
    }
    return 0;
}

PyDoc_STRVAR(receive_doc,
"receive(events, links) -> (arrived, wrapped, rest, full)\n\n"
"Read the sockets of a poll: (connection, bytes), (link, bytes) of what a wrapping has to take itself, events for the caller,\n"
"links of the first that had as much as was to be read of them at once. Events are those of poll(), or pairs in a list.");

static PyObject *receive(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *events, *links;
    Py_ssize_t room = ROOM;
    if (!PyArg_ParseTuple(args, "OO!", &events, &PyDict_Type, &links)) return NULL;
    if (!PyBytes_CheckExact(events) && !PyList_CheckExact(events)) return PyErr_Format(PyExc_TypeError, "events are those of poll(), or a list");
    lists to = {PyList_New(0), PyList_New(0), PyList_New(0), PyList_New(0)};
    int failed = to.arrived == NULL || to.wrapped == NULL || to.rest == NULL || to.full == NULL;
    if (!failed) failed = (PyBytes_CheckExact(events) ? take_polled(links, events, &room, &to) : take_pairs(links, events, &room, &to)) < 0;
    if (!failed) return Py_BuildValue("NNNN", to.arrived, to.wrapped, to.rest, to.full);
    Py_XDECREF(to.full);
    Py_XDECREF(to.arrived);
    Py_XDECREF(to.wrapped);
    Py_XDECREF(to.rest);
    return NULL;
}

PyDoc_STRVAR(poll_doc,
"poll(epoll, seconds) -> events\n\n"
"What an epoll has, for receive(); false if it has nothing. Negative seconds: however long it takes.");

static PyObject *poll_events(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *epoll;
    double seconds;
    struct epoll_event found[MOST_EVENTS];
    if (!PyArg_ParseTuple(args, "Od", &epoll, &seconds)) return NULL;
    int fd = PyObject_AsFileDescriptor(epoll);
    if (fd < 0) return NULL;
    double milliseconds = seconds * 1000;
    int count, timeout = !(milliseconds >= 0) ? -1 : milliseconds >= INT_MAX ? INT_MAX : (int)milliseconds;
    if (timeout >= 0 && timeout < milliseconds && timeout < INT_MAX) timeout++; /* not before the time is over */
    Py_BEGIN_ALLOW_THREADS
    count = epoll_wait(fd, found, MOST_EVENTS, timeout);
    Py_END_ALLOW_THREADS
    if (count < 0 && errno != EINTR) return PyErr_SetFromErrno(PyExc_OSError);
    if (count < 0 && PyErr_CheckSignals() < 0) return NULL;
    if (count < 0) count = epoll_wait(fd, found, MOST_EVENTS, 0); /* what came while the process was stopped, before any timer */
    return PyBytes_FromStringAndSize((const char *)found, count < 0 ? 0 : (Py_ssize_t)(count * sizeof *found));
}

/* MQTT's bytes as the peer of a link of the hub's kind gets them: a new reference. */
static PyObject *wrapped(PyObject *link, PyObject *data)
{
    PyObject *wrapping = attribute(link, WRAPPING);
    if (wrapping == NULL) return NULL;
    PyObject *made = NULL;
    if (wrapping == Py_None) {
        made = Py_NewRef(data);
    } else {
        PyObject *outward = attribute(link, OUTWARD); /* one call, where there is one */
        if (outward == Py_None) made = PyObject_CallMethodOneArg(wrapping, s_wrap, data);
        else if (outward != NULL) made = PyObject_CallOneArg(outward, data);
        Py_XDECREF(outward);
    }
    Py_DECREF(wrapping);
    return made;
}

/* Where to, and what; fd -1: it is for the caller. */
static int prepare(sending *one, PyObject *kind, PyObject *link, PyObject *data)
{
    one->fd = -1;
    one->sent = 0;
    int is_ours = (PyObject *)Py_TYPE(link) == kind;
    if ((one->data = is_ours ? wrapped(link, data) : Py_NewRef(data)) == NULL) return -1;
    if (!PyBytes_CheckExact(one->data)) {
        PyErr_SetString(PyExc_TypeError, "what is written is bytes");
        return -1;
    }
    if (is_ours) one->fd = (int)number_of(link, DIRECT);
    return one->fd == -1 && PyErr_Occurred() ? -1 : 0;
}

/* What is left of it, with its place: a new reference. */
static PyObject *left(Py_ssize_t at, const sending *one)
{
    if (one->sent <= 0) return Py_BuildValue("nO", at, one->data);
    return Py_BuildValue("ny#", at, PyBytes_AS_STRING(one->data) + one->sent, PyBytes_GET_SIZE(one->data) - (Py_ssize_t)one->sent);
}

static void forget_all(sending *all, Py_ssize_t count)
{
    for (Py_ssize_t at = 0; all != NULL && at < count; at++) Py_XDECREF(all[at].data);
    PyMem_Free(all);
}

PyDoc_STRVAR(write_doc,
"write(kind, links, datas) -> list of (position, bytes left)\n\n"
"Send each link of this kind its bytes, wrapped as its peer gets them, if nothing waits before them; the answer names those\n"
"that did not take all, and what they did not take.");

static PyObject *write_each(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *kind, *links, *datas;
    if (!PyArg_ParseTuple(args, "OO!O!", &kind, &PyList_Type, &links, &PyList_Type, &datas)) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(links);
    if (PyList_GET_SIZE(datas) != count) {
        PyErr_SetString(PyExc_ValueError, "as many links as bytes");
        return NULL;
    }
    PyObject *rest = PyList_New(0);
    sending *all = PyMem_Calloc(count ? (size_t)count : 1, sizeof *all);
    if (rest == NULL || all == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t at = 0; at < count; at++)
        if (prepare(&all[at], kind, PyList_GET_ITEM(links, at), PyList_GET_ITEM(datas, at)) < 0) goto failed;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = send_in_one_call(all, count); at < count; at++)
        if (all[at].fd >= 0) send_one(&all[at]);
    Py_END_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < count; at++) {
        if (all[at].fd >= 0 && all[at].sent == PyBytes_GET_SIZE(all[at].data)) continue;
        PyObject *rests = left(at, &all[at]);
        int failed = rests == NULL || PyList_Append(rest, rests) < 0;
        Py_XDECREF(rests);
        if (failed) goto failed;
    }
    forget_all(all, count);
    return rest;
failed:
    forget_all(all, count);
    Py_XDECREF(rest);
    return NULL;
}

PyDoc_STRVAR(sends_doc, "sends_in_one_call() -> bool\n\nWhether the kernel lets the sends of a batch be one call.");

static PyObject *sends(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(sends_in_one_call());
}

static PyMethodDef methods[] = {
    {"poll", poll_events, METH_VARARGS, poll_doc},
    {"receive", receive, METH_VARARGS, receive_doc},
    {"write", write_each, METH_VARARGS, write_doc},
    {"sends_in_one_call", sends, METH_NOARGS, sends_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.net._wire", "Many sockets at once; see the source.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__wire(void)
{
    if (check_sources() < 0) return NULL;
    if ((s_wrap = PyUnicode_InternFromString("wrap")) == NULL) return NULL;
    for (int i = 0; i < ATTRIBUTES; i++)
        if ((names[i] = PyUnicode_InternFromString(texts[i])) == NULL) return NULL;
    return PyModule_Create(&module);
}
