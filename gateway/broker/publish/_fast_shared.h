/*
 * The route of a client that is new to a topic, made of what all routes to the topic have in common: see
 * shared_routes.py, which does the same in Python.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { PUBLISHER_PARTS = 4, SHARED_PARTS = 3, CLIENT_PARTS = 5 }; /* of a Publisher, a SharedRoute, a ClientPart */
enum { BEFORE_LENGTH = 12 }; /* bytes of an MQRFH2 up to and with StrucLength */

static PyObject *no_user; /* an empty text */
static PyObject *s_sharing;

/* A copy of a route, which has slots and nothing else: a new reference. */
static PyObject *copy_of_route(PyObject *route)
{
    PyTypeObject *type = classes_of[A_ROUTE];
    if (!is_a(route, A_ROUTE) || type->tp_dictoffset != 0 || type->tp_weaklistoffset != 0 || type->tp_itemsize != 0) {
        PyErr_SetString(PyExc_TypeError, "what is shared is a route, which has slots");
        return NULL;
    }
    PyObject *copy = PyType_GenericAlloc(type, 0);
    if (copy == NULL) return NULL;
    for (Py_ssize_t at = (Py_ssize_t)sizeof(PyObject); at < type->tp_basicsize; at += (Py_ssize_t)sizeof(PyObject *))
        *(PyObject **)((char *)copy + at) = Py_XNewRef(*(PyObject **)((char *)route + at));
    return copy;
}

/* The head of a client's messages on a topic with this front: a new reference. */
static PyObject *head_of_client(PyObject *client, PyObject *front)
{
    PyObject *before = PyTuple_GET_ITEM(client, 0), *alone = PyTuple_GET_ITEM(client, 1), *folder = PyTuple_GET_ITEM(client, 2);
    if (!PyBytes_CheckExact(before) || !PyBytes_CheckExact(alone) || !PyBytes_CheckExact(folder) || !PyLong_Check(PyTuple_GET_ITEM(client, 4))) {
        PyErr_SetString(PyExc_TypeError, "a client's part of a message is bytes, and a length");
        return NULL;
    }
    Py_ssize_t fronts = PyBytes_GET_SIZE(front), begins = PyBytes_GET_SIZE(before), ends = PyBytes_GET_SIZE(folder);
    if (fronts == 0) return Py_NewRef(alone);
    uint32_t size = (uint32_t)(BEFORE_LENGTH + fronts + as_long(PyTuple_GET_ITEM(client, 4)));
    PyObject *head = PyBytes_FromStringAndSize(NULL, begins + 4 + fronts + ends);
    if (head == NULL) return NULL;
    unsigned char *to = (unsigned char *)PyBytes_AS_STRING(head);
    memcpy(to, PyBytes_AS_STRING(before), (size_t)begins);
    to += begins;
    for (int i = 0; i < 4; i++) *to++ = (unsigned char)(size >> 8 * i);
    memcpy(to, PyBytes_AS_STRING(front), (size_t)fronts);
    memcpy(to + fronts, PyBytes_AS_STRING(folder), (size_t)ends);
    return head;
}

/* The shared route of a topic: a new reference. NULL: there is none that is valid, or an error is set. */
static PyObject *valid_shared(PyObject *routes, PyObject *topic, PyObject *first, PyObject *listener, int has_user)
{
    PyObject *key = PyTuple_Pack(4, topic, first, listener, has_user ? Py_True : Py_False);
    PyObject *shared = key != NULL ? Py_XNewRef(PyDict_GetItemWithError(routes, key)) : NULL;
    Py_XDECREF(key);
    if (shared == NULL) return NULL;
    if (!is_tuple_of(shared, SHARED_PARTS) || !PyDict_Check(PyTuple_GET_ITEM(shared, 1)) || !PyBytes_CheckExact(PyTuple_GET_ITEM(shared, 2))) {
        PyErr_SetString(PyExc_TypeError, "a shared route is a route, a dict and bytes");
        Py_DECREF(shared);
        return NULL;
    }
    long path = fast_path_of(PyTuple_GET_ITEM(shared, 0));
    if (path < 0 || path == STALE) Py_CLEAR(shared);
    return shared;
}

/* Whether a client may publish to a topic: as it is known, or asked; -1: an error is set. */
static int is_allowed(PyObject *decisions, PyObject *may_publish, PyObject *publisher, PyObject *topic)
{
    if (topic == NULL || decisions == Py_True) return topic == NULL ? -1 : 1;
    PyObject *said = PyDict_CheckExact(decisions) ? Py_XNewRef(PyDict_GetItemWithError(decisions, topic)) : NULL;
    if (said == NULL && PyErr_Occurred()) return -1;
    if (said == NULL) {
        PyObject *arguments[] = {PyTuple_GET_ITEM(publisher, 0), PyTuple_GET_ITEM(publisher, 1), PyTuple_GET_ITEM(publisher, 2), topic};
        said = PyObject_Vectorcall(may_publish, arguments, 4, NULL);
    }
    int yes = said == NULL ? -1 : PyObject_IsTrue(said);
    Py_XDECREF(said);
    return yes;
}

/* A client's part of the message: a new reference. NULL: it is not known, or an error is set. */
static PyObject *part_of_client(PyObject *clients, PyObject *client_id, PyObject *user)
{
    PyObject *key = PyTuple_Pack(2, client_id, user);
    PyObject *client = key != NULL ? Py_XNewRef(PyDict_GetItemWithError(clients, key)) : NULL;
    Py_XDECREF(key);
    if (client != NULL && !is_tuple_of(client, CLIENT_PARTS)) {
        PyErr_SetString(PyExc_TypeError, "a client's part of a message has five parts");
        Py_CLEAR(client);
    }
    return client;
}

/* The pattern as the route of a client: a new reference. */
static PyObject *route_of_client(PyObject *shared, PyObject *client, PyObject *publisher)
{
    PyObject *front = PyTuple_GET_ITEM(shared, 2), *head = head_of_client(client, front);
    PyObject *route = head != NULL ? copy_of_route(PyTuple_GET_ITEM(shared, 0)) : NULL;
    if (route == NULL) {
        Py_XDECREF(head);
        return NULL;
    }
    Py_XSETREF(*place(route, HEAD), head);
    Py_XSETREF(*place(route, PUBLISHER), Py_NewRef(publisher));
    if (PyBytes_GET_SIZE(front) != 0) Py_XSETREF(*place(route, TAILS), Py_NewRef(PyTuple_GET_ITEM(client, 3)));
    return route;
}

/* The route of a client of the shared one: a new reference. NULL: there is none, or an error is set. */
static PyObject *joined_route(PyObject *routes, PyObject *publisher, PyObject *wire_topic, PyObject *first, PyObject *decisions, PyObject *may_publish)
{
    PyObject *listener = PyTuple_GET_ITEM(publisher, 0), *client_id = PyTuple_GET_ITEM(publisher, 1), *user = PyTuple_GET_ITEM(publisher, 2);
    int has_user = PyObject_IsTrue(user);
    PyObject *shared = has_user < 0 ? NULL : valid_shared(routes, wire_topic, first, listener, has_user), *client = NULL, *route = NULL;
    if (shared != NULL && is_allowed(decisions, may_publish, publisher, field(PyTuple_GET_ITEM(shared, 0), TOPIC)) == 1)
        client = part_of_client(PyTuple_GET_ITEM(shared, 1), client_id, has_user ? user : no_user);
    if (client != NULL) route = route_of_client(shared, client, publisher);
    Py_XDECREF(client);
    Py_XDECREF(shared);
    return route;
}

/* Whether routes are made here; -1: an error is set. */
static int makes_routes(sharing *with, PyObject *lane)
{
    if (with->said == NULL) {
        PyObject *said = PyObject_CallMethodNoArgs(lane, s_sharing);
        if (said == NULL) return -1;
        if (said != Py_None && !PyArg_ParseTuple(said, "O!On", &PyDict_Type, &with->routes, &with->may_publish, &with->most)) {
            Py_DECREF(said);
            return -1;
        }
        with->said = said;
    }
    return with->said != Py_None;
}

/*
 * The route of a client that is new to a topic, from now on in its cache: a new reference. NULL: whoever is asked for a route
 * makes it, and meets what is wrong with it; or an error is set.
 */
static PyObject *new_route_of(const taking *of, PyObject *cache, unsigned first, PyObject *topic)
{
    sharing *with = &of->turn->sharing;
    PyObject *publisher = field(of->connection, PUBLISHER_OF), *decisions = field(of->connection, DECISIONS);
    int makes = publisher == NULL || decisions == NULL ? -1 : makes_routes(with, of->turn->lane);
    if (makes != 1 || !is_tuple_of(publisher, PUBLISHER_PARTS) || PyDict_GET_SIZE(cache) >= with->most) return NULL;
    PyObject *number = PyLong_FromLong((long)(first & 7));
    PyObject *route = number != NULL ? joined_route(with->routes, publisher, topic, number, decisions, with->may_publish) : NULL;
    Py_XDECREF(number);
    if (route != NULL && PyDict_SetItem(cache, topic, route) < 0) Py_CLEAR(route);
    if (route == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    return route;
}

PyDoc_STRVAR(join_doc,
"join(routes, publisher, wire_topic, first, decisions, may_publish) -> Route or None\n\n"
"The route of a client of a shared one. None: there is none that is valid, the client may not publish there, or its part\n"
"of the message is not known yet.");

static PyObject *join(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    if (classes_of[A_ROUTE] == NULL || nargs != 6 || !PyDict_CheckExact(args[0]) || !is_tuple_of(args[1], PUBLISHER_PARTS)) {
        PyErr_SetString(PyExc_TypeError, "join(dict, publisher, bytes, int, dict or True, callable)");
        return NULL;
    }
    PyObject *route = joined_route(args[0], args[1], args[2], args[3], args[4], args[5]);
    if (route == NULL && !PyErr_Occurred()) Py_RETURN_NONE;
    return route;
}
