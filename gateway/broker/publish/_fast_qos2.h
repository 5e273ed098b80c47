/*
 * QoS 2: staged at PUBLISH, as records or in runs. As take_publications(), each function returns 1 where packets were taken,
 * 0 where none was, and -1 with an error set.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { STAGED_ID = 2 }; /* bytes of the packet identifier before the payload in a staged record */
enum { MOST = 512 }; /* publications in a run */

static PyObject *s_admits, *s_records, *s_staged_head, *s_new_run, *s_stage, *s_ids, *s_bodies, *s_size, *s_longest;

/* A list that an object has as attribute; NULL, with an error, where it is none. A new reference. */
static PyObject *list_of(PyObject *object, PyObject *name)
{
    PyObject *found = PyObject_GetAttr(object, name);
    if (found != NULL && !PyList_CheckExact(found)) {
        PyErr_Format(PyExc_TypeError, "%U is a list", name);
        Py_CLEAR(found);
    }
    return found;
}

/* -- runs: staged as the messages that they will be -- */

/* Whether enough publications of one topic follow for a run. */
static int have_one_topic(const taking *of, unsigned first, const publication *begin)
{
    publication next = *begin;
    for (Py_ssize_t left = least; --left > 0;)
        if (!read_publication(of, next.stop, first, &next) || next.block_length != 0 || !same_topic(begin, &next)) return 0;
    return 1;
}

/* 1: one more in the run; 0: its identifier is in use; -1: an error is set. */
static int stage_in_run(taking *of, const publication *one, tail_source *tail, PyObject *run, PyObject *ids, PyObject *bodies)
{
    PyObject *number = PyLong_FromLong((long)one->packet_id);
    if (number == NULL) return -1;
    Py_ssize_t known = PyDict_GET_SIZE(of->inbound);
    int done = -1;
    if (PyDict_SetDefault(of->inbound, number, run) == NULL) done = -1;
    else if (PyDict_GET_SIZE(of->inbound) == known) done = 0;
    else if (append(bodies, body_of(tail, one->packet_id, one->payload, one->length)) == 0)
        done = PyList_Append(ids, number) < 0 || answer(of, PUBREC, one->packet_id) < 0 ? -1 : 1;
    Py_DECREF(number);
    return done;
}

static int set_sizes(PyObject *run, Py_ssize_t size, Py_ssize_t longest)
{
    PyObject *all = PyLong_FromSsize_t(size), *most = PyLong_FromSsize_t(longest);
    int failed = all == NULL || most == NULL || PyObject_SetAttr(run, s_size, all) < 0 || PyObject_SetAttr(run, s_longest, most) < 0;
    Py_XDECREF(all);
    Py_XDECREF(most);
    return failed ? -1 : 0;
}

static int fill_run(taking *of, unsigned first, PyObject *route, PyObject *run)
{
    PyObject *ids = list_of(run, s_ids), *bodies = ids != NULL ? list_of(run, s_bodies) : NULL, *tails = field(route, TAILS);
    publication one, before = {0};
    tail_source tail = {NULL, NULL, 0};
    Py_ssize_t rows = 0, size = 0, longest = 0, most = room(of) < MOST ? room(of) : MOST;
    int more = bodies == NULL || tails == NULL || learn_tail(of, &tail, tails) < 0 ? -1 : 1;
    while (more == 1 && rows < most && read_publication(of, of->at, first, &one) && one.block_length == 0) {
        if (before.topic != NULL && !same_topic(&one, &before)) break;
        if ((more = stage_in_run(of, &one, &tail, run, ids, bodies)) != 1) break;
        Py_ssize_t length = PyBytes_GET_SIZE(PyList_GET_ITEM(bodies, PyList_GET_SIZE(bodies) - 1));
        size += length;
        if (length > longest) longest = length;
        before = one;
        of->at = one.stop;
        rows++;
    }
    forget_tail(&tail);
    Py_XDECREF(ids);
    Py_XDECREF(bodies);
    of->received += rows;
    if (more >= 0 && set_sizes(run, size, longest) < 0) more = -1;
    return more < 0 ? -1 : rows > 0;
}

static int stage_run(taking *of, unsigned first, PyObject *route)
{
    PyObject *run = PyObject_CallMethodObjArgs(of->turn->lane, s_new_run, of->session, route, NULL);
    int done = run == NULL ? -1 : run == Py_None ? 0 : fill_run(of, first, route, run);
    if (done == 1) {
        PyObject *staged = PyObject_CallMethodObjArgs(of->turn->lane, s_stage, of->session, run, NULL);
        if (staged == NULL) done = -1;
        Py_XDECREF(staged);
    }
    Py_XDECREF(run);
    return done;
}

/* -- records -- */

typedef struct {
    PyObject *heads, *bodies;                    /* borrowed from the turn */
    PyObject *ids, *topic, *first, *head;        /* references are held */
    PyObject *promised;                          /* the route of the topic, if its subscribers have to have room; held; or NULL */
    int is_unwanted;                             /* whether nobody gets what is published there */
} records;

/* Whether sessions have the same key for what they stage. */
static int is_key(PyObject *known, PyObject *key)
{
    if (known == key) return 1;
    return known != NULL && PyBytes_CheckExact(known) && PyBytes_CheckExact(key) && PyBytes_GET_SIZE(known) == PyBytes_GET_SIZE(key) &&
           !memcmp(PyBytes_AS_STRING(known), PyBytes_AS_STRING(key), (size_t)PyBytes_GET_SIZE(key));
}

/* Ask where records of a session are staged with the open batch: sessions that follow often have the same key. */
static int ask_for_staging(const taking *of, staging *with)
{
    with->key = NULL;
    Py_XSETREF(with->said, PyObject_CallMethodOneArg(of->turn->lane, s_records, of->session));
    PyObject *key;
    if (with->said == NULL ||
        !PyArg_ParseTuple(with->said, "SOO!O!O!", &key, &with->puts, &PyList_Type, &with->heads, &PyList_Type, &with->bodies, &PyList_Type, &with->staged))
        return -1;
    with->key = key;
    return 0;
}

static int open_records(const taking *of, unsigned first, records *to)
{
    memset(to, 0, sizeof *to);
    staging *with = &of->turn->staging;
    PyObject *key = field(of->session, STAGED_KEY);
    if (key == NULL || (!is_key(with->key, key) && ask_for_staging(of, with) < 0)) return -1;
    to->heads = with->heads;
    to->bodies = with->bodies;
    to->ids = PyList_New(0);
    to->first = PyLong_FromLong((long)(first & ~(unsigned)DUP));
    PyObject *begin = PyLong_FromSsize_t(PyList_GET_SIZE(with->heads)), *noted = NULL;
    if (to->ids != NULL && to->first != NULL && begin != NULL)
        noted = PyTuple_Pack(5, of->session, with->puts, begin, to->ids, Py_None);
    Py_XDECREF(begin);
    return append(with->staged, noted);
}

static void close_records(records *to)
{
    Py_XDECREF(to->ids);
    Py_XDECREF(to->topic);
    Py_XDECREF(to->first);
    Py_XDECREF(to->head);
    Py_XDECREF(to->promised);
}

/* Use the head of the records of a topic, which is stolen, with this route, which is stolen too. 0: it is not staged. */
static int open_record_topic(const taking *of, PyObject *topic, PyObject *route, long path, records *to)
{
    Py_XSETREF(to->topic, topic);
    if (route == NULL) return PyErr_Occurred() ? -1 : 0;
    int done = path == path_staged || path == path_promised || path == path_unrouted;
    to->is_unwanted = path == path_unrouted;
    Py_XSETREF(to->promised, path == path_promised ? Py_NewRef(route) : NULL);
    if (done) {
        PyObject *head = *place(route, STAGED_HEAD); /* NULL or empty: nobody has asked for it yet */
        int is_made = head != NULL && PyBytes_CheckExact(head) && PyBytes_GET_SIZE(head) > 0;
        Py_XSETREF(to->head, is_made ? Py_NewRef(head) : PyObject_CallMethodObjArgs(of->turn->lane, s_staged_head, route, of->session, NULL));
        if (to->head == NULL) done = -1;
    }
    Py_DECREF(route);
    return done;
}

/* The head of a record with properties: a new reference. */
static PyObject *head_with_block(PyObject *head, const publication *one)
{
    enum { NONE = 5 }; /* bytes that say that there are no properties and no subscription identifiers */
    Py_ssize_t front = PyBytes_GET_SIZE(head) - NONE;
    PyObject *made = front < 0 ? NULL : PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(head) + one->block_length);
    if (made == NULL) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a record says what properties it has");
        return NULL;
    }
    char *to = copy(PyBytes_AS_STRING(made), PyBytes_AS_STRING(head), front);
    *copy(copy_number(to, one->block_length), one->block, one->block_length) = 0;
    return made;
}

/* 1: one more is staged; 0: its identifier is in use; -1: an error is set. */
static int stage_record(taking *of, const publication *one, const records *to)
{
    int has_block = one->block_length != 0, done = -1;
    PyObject *id = PyLong_FromLong((long)one->packet_id), *kept = NULL, *body = NULL;
    PyObject *head = has_block ? head_with_block(to->head, one) : Py_NewRef(to->head);
    PyObject *block = has_block ? PyBytes_FromStringAndSize((const char *)one->block, one->block_length) : Py_NewRef(Py_None);
    if (id != NULL && head != NULL && block != NULL && (body = PyBytes_FromStringAndSize(NULL, STAGED_ID + one->length)) != NULL &&
        (kept = PyTuple_New(3 + has_block)) != NULL) {
        char *at = PyBytes_AS_STRING(body);
        at[0] = (char)one->packet_id;
        at[1] = (char)(one->packet_id >> 8);
        memcpy(at + STAGED_ID, one->payload, (size_t)one->length);
        PyTuple_SET_ITEM(kept, 0, Py_NewRef(to->topic));
        PyTuple_SET_ITEM(kept, 1, Py_NewRef(body));
        PyTuple_SET_ITEM(kept, 2, Py_NewRef(to->first));
        if (has_block) PyTuple_SET_ITEM(kept, 3, Py_NewRef(block));
        PyObject_GC_UnTrack(kept); /* bytes and a number: in no cycle */
        PyObject *known = PyDict_SetDefault(of->inbound, id, kept);
        if (known != NULL && known != kept) done = 0; /* sent before */
        else if (known == kept && PyList_Append(to->ids, id) == 0 && PyList_Append(to->heads, head) == 0 &&
                 PyList_Append(to->bodies, body) == 0)
            done = 1;
    }
    Py_XDECREF(id);
    Py_XDECREF(head);
    Py_XDECREF(block);
    Py_XDECREF(kept);
    Py_XDECREF(body);
    return done;
}

/* Whether a publication can be staged with the properties that it has. */
static int can_stage(const taking *of, const publication *one)
{
    given said;
    unsigned alias;
    if (one->block_length == 0) return 1;
    if (!read_properties(one->block, one->block_length, &said, &alias) || said.count > of->most_users || said.has_expiry || alias != 0) return 0;
    return !said.says_text || is_utf8(one->payload, one->length);
}

/* Whether the subscribers of a topic have room for one more; -1: an error is set. */
static int have_room(const taking *of, const records *to, const publication *one)
{
    if (to->promised == NULL) return 1;
    PyObject *size = PyLong_FromSsize_t(one->length), *said = NULL;
    if (size != NULL) said = PyObject_CallMethodObjArgs(of->turn->lane, s_admits, to->promised, size, NULL);
    int yes = said == NULL ? -1 : PyObject_IsTrue(said);
    Py_XDECREF(size);
    Py_XDECREF(said);
    return yes;
}

/* Publications as records, the first of which has this topic and this route. */
static int stage_records(taking *of, unsigned first, PyObject *topic, PyObject *route, long path)
{
    records to;
    publication one, before = {0};
    Py_ssize_t rows = 0;
    int more = open_records(of, first, &to) < 0 ? -1 : 1;
    while (more == 1 && room(of) > 0 && read_publication(of, of->at, first, &one) && can_stage(of, &one)) {
        if (before.topic == NULL) {
            more = open_record_topic(of, Py_NewRef(topic), Py_NewRef(route), path, &to);
        } else if (!same_topic(&one, &before)) {
            PyObject *other, *found = route_and_topic(of, first, &one, &other, &path);
            more = open_record_topic(of, other, found, path, &to);
        }
        if (more == 1) more = have_room(of, &to, &one);
        if (more == 1) more = stage_record(of, &one, &to);
        if (more == 1 && (to.is_unwanted && of->is_5 ? answer_unwanted(of, PUBREC, one.packet_id) : answer(of, PUBREC, one.packet_id)) < 0) more = -1;
        if (more != 1) break;
        before = one;
        of->at = one.stop;
        rows++;
    }
    close_records(&to);
    of->received += rows;
    return more < 0 ? -1 : rows > 0;
}

static int take_staged(taking *of, unsigned first)
{
    publication one;
    if ((first & 6) == 6 || !read_publication(of, of->at, first, &one)) return 0;
    long path = 0;
    PyObject *topic, *route = route_and_topic(of, first, &one, &topic, &path);
    int done = route == NULL && PyErr_Occurred() ? -1 : 0;
    if (path == path_staged && one.block_length == 0 && have_one_topic(of, first, &one)) done = stage_run(of, first, route);
    if ((path == path_staged || path == path_promised || path == path_unrouted) && done == 0) done = stage_records(of, first, topic, route, path);
    Py_XDECREF(topic);
    Py_XDECREF(route);
    return done;
}
