/*
 * QoS 2: what was staged is released at PUBREL. As take_publications(), each function returns 1 where packets were taken, 0
 * where none was, and -1 with an error set.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

static PyObject *s_keeps_until, *s_may_move, *s_move, *s_taken_records, *s_release;

/* -- PUBREL of a run -- */

/* Where in a run an identifier is; -1: nowhere, or an error is set. */
static Py_ssize_t position_of(PyObject *ids, long packet_id)
{
    Py_ssize_t count = PyList_GET_SIZE(ids);
    if (count == 0) return -1;
    long begin = PyLong_AsLong(PyList_GET_ITEM(ids, 0)), guess = packet_id - begin;
    if (guess >= 0 && guess < count && PyLong_AsLong(PyList_GET_ITEM(ids, guess)) == packet_id) return guess;
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++)
        if (PyLong_AsLong(PyList_GET_ITEM(ids, i)) == packet_id) return i;
    return -1;
}

/* Whether a method of the lane says yes; -1: an error is set. */
static int lane_says(const taking *of, PyObject *method, PyObject *argument)
{
    PyObject *said = PyObject_CallMethodObjArgs(of->turn->lane, method, of->connection, argument, NULL);
    int yes = said == NULL ? -1 : PyObject_IsTrue(said);
    Py_XDECREF(said);
    return yes;
}

static int move_run(const taking *of, PyObject *run, Py_ssize_t begin, Py_ssize_t rows)
{
    PyObject *from = PyLong_FromSsize_t(begin), *count = PyLong_FromSsize_t(rows), *moved = NULL;
    if (from != NULL && count != NULL)
        moved = PyObject_CallMethodObjArgs(of->turn->lane, s_move, of->connection, run, from, count, NULL);
    Py_XDECREF(from);
    Py_XDECREF(count);
    Py_XDECREF(moved);
    return moved == NULL ? -1 : 0;
}

static int release_run(taking *of, PyObject *run)
{
    int more = lane_says(of, s_may_move, run);
    if (more != 1) return more;
    PyObject *ids = list_of(run, s_ids);
    if (ids == NULL) return -1;
    Py_ssize_t rows = 0, begin = position_of(ids, (long)read_pubrel(of, of->at));
    if (begin < 0) more = PyErr_Occurred() ? -1 : 0;
    for (unsigned packet_id; more == 1 && begin + rows < PyList_GET_SIZE(ids) && (packet_id = read_pubrel(of, of->at)) != 0;) {
        PyObject *id = Py_NewRef(PyList_GET_ITEM(ids, begin + rows));
        if (PyLong_AsLong(id) != (long)packet_id || PyDict_GetItemWithError(of->inbound, id) != run) more = PyErr_Occurred() ? -1 : 0;
        else if (PyDict_DelItem(of->inbound, id) < 0 || answer(of, PUBCOMP, packet_id) < 0) more = -1;
        Py_DECREF(id);
        if (more != 1) break;
        of->at += 4;
        rows++;
    }
    Py_DECREF(ids);
    of->completed += rows;
    if (of->is_5) of->in_flight += rows; /* until their PUBCOMPs are sent */
    return more < 0 || (rows != 0 && move_run(of, run, begin, rows) < 0) ? -1 : rows > 0;
}

/* -- PUBREL of records -- */

/* The staged record of a packet identifier. */
typedef struct {
    PyObject *id, *kept, *token; /* references are held */
} staged;

static void forget_staged(staged *one)
{
    Py_CLEAR(one->id);
    Py_CLEAR(one->kept);
    Py_CLEAR(one->token);
}

/* 1: a publication that is stored as a record; 0: something else; -1: an error is set. */
static int find_staged(const taking *of, unsigned packet_id, PyObject *tokens, staged *one)
{
    if ((one->id = PyLong_FromLong((long)packet_id)) == NULL) return -1;
    PyObject *kept = PyDict_GetItemWithError(of->inbound, one->id);
    if (kept == NULL) return PyErr_Occurred() ? -1 : 0;
    if (!PyTuple_CheckExact(kept) || PyTuple_GET_SIZE(kept) < 3 || PyTuple_GET_SIZE(kept) > 4 || !PyBytes_CheckExact(PyTuple_GET_ITEM(kept, 0)) ||
        !PyBytes_CheckExact(PyTuple_GET_ITEM(kept, 1)) || PyBytes_GET_SIZE(PyTuple_GET_ITEM(kept, 1)) < STAGED_ID ||
        !PyLong_CheckExact(PyTuple_GET_ITEM(kept, 2)))
        return 0;
    PyObject *token = PyDict_GetItemWithError(tokens, one->id);
    if (token == NULL) return PyErr_Occurred() ? -1 : 0;
    one->kept = Py_NewRef(kept);
    one->token = Py_NewRef(token);
    return 1;
}

static int is_like(const staged *one, const staged *before)
{
    if (before->kept == NULL) return 0;
    PyObject *topic = PyTuple_GET_ITEM(one->kept, 0), *last = PyTuple_GET_ITEM(before->kept, 0);
    PyObject *first = PyTuple_GET_ITEM(one->kept, 2), *last_first = PyTuple_GET_ITEM(before->kept, 2);
    if (first != last_first && PyLong_AsLong(first) != PyLong_AsLong(last_first)) return 0;
    return last == topic || (PyBytes_GET_SIZE(last) == PyBytes_GET_SIZE(topic) &&
                             !memcmp(PyBytes_AS_STRING(last), PyBytes_AS_STRING(topic), (size_t)PyBytes_GET_SIZE(topic)));
}

/* Consecutive rows of one address that release staged messages: noted once, as (first row, session, ids, tokens). */
typedef struct {
    PyObject *ids, *tokens; /* lists, to which references are held; NULL: none is open */
} released_rows;

static int begin_released(released_rows *rows, const open_columns *open, PyObject *session)
{
    PyObject *released = field(open->columns, RELEASED), *noted;
    if (released == NULL || !PyList_CheckExact(released)) {
        if (released != NULL) PyErr_SetString(PyExc_TypeError, "released rows are a list");
        return -1;
    }
    if ((rows->ids = PyList_New(0)) == NULL || (rows->tokens = PyList_New(0)) == NULL ||
        (noted = PyTuple_New(4)) == NULL)
        return -1;
    PyObject *begin = PyLong_FromSsize_t(PyList_GET_SIZE(open->heads));
    if (begin == NULL) {
        Py_DECREF(noted);
        return -1;
    }
    PyTuple_SET_ITEM(noted, 0, begin);
    PyTuple_SET_ITEM(noted, 1, Py_NewRef(session));
    PyTuple_SET_ITEM(noted, 2, Py_NewRef(rows->ids));
    PyTuple_SET_ITEM(noted, 3, Py_NewRef(rows->tokens));
    return append(released, noted);
}

static void end_released(released_rows *rows)
{
    Py_CLEAR(rows->ids);
    Py_CLEAR(rows->tokens);
}

/* Where the messages of records of one topic go. */
typedef struct {
    direction to;
    Py_ssize_t count;                /* of queues, where there are several */
    targets several;                 /* is set only then */
    released_rows rows[MOST_LINKED]; /* of these; otherwise only the first is set */
    PyObject *chunk;                 /* what the client has sent: borrowed */
    Py_ssize_t keeps_until;          /* where what PUBRELs release can be retained; see keeps_until() of the lane */
} release;

/* No more of these follow. */
static int end_topic(const taking *of, release *all)
{
    end_released(&all->rows[0]);
    if (all->count == 0) return 0;
    int failed = end_run(of, QOS_2, &all->several) < 0;
    leave_targets(&all->several);
    for (Py_ssize_t i = 1; i < all->count; i++) end_released(&all->rows[i]);
    all->count = 0;
    return failed ? -1 : 0;
}

/* Lead along a route that is linked to several others. */
static int lead_several(release *all, PyObject *linked)
{
    if (find_targets(linked, &all->several) < 0) return -1;
    all->count = all->several.count;
    for (Py_ssize_t i = 0; i < all->count; i++) all->rows[i] = (released_rows){NULL, NULL};
    return 0;
}

/* Whether what the next PUBREL releases can be retained; -1: an error is set. */
static int can_keep_released(const taking *of, release *all)
{
    if (of->kept != NULL && PyDict_GET_SIZE(of->kept) >= MOST_KEPT) return 0;
    if (of->at < all->keeps_until) return 1;
    PyObject *at = PyLong_FromSsize_t(of->at), *said = NULL;
    if (at != NULL) said = PyObject_CallMethodObjArgs(of->turn->lane, s_keeps_until, of->connection, all->chunk, at, NULL);
    all->keeps_until = said == NULL ? -1 : PyLong_AsSsize_t(said);
    Py_XDECREF(at);
    Py_XDECREF(said);
    return PyErr_Occurred() ? -1 : of->at < all->keeps_until;
}

/* Lead to the columns of a record's route; 0: it is not staged any more. */
static int lead_staged(const taking *of, const staged *one, release *all)
{
    unsigned first = (unsigned)PyLong_AsLong(PyTuple_GET_ITEM(one->kept, 2));
    PyObject *cache = cache_of(of, first);
    if (cache == NULL) return -1;
    long path;
    PyObject *route = route_of(of, cache, first, PyTuple_GET_ITEM(one->kept, 0), &path);
    if (route == NULL) return PyErr_Occurred() ? -1 : 0;
    if (path != path_staged) {
        Py_DECREF(route);
        return 0;
    }
    if (lead_to(of, &all->to, route) < 0) return -1;
    PyObject *linked = field(route, LINKED);
    if (linked != NULL && PyTuple_CheckExact(linked) && PyTuple_GET_SIZE(linked) == 0) return 1;
    return lead_several(all, linked) < 0 ? -1 : 1;
}

/* The head of the message of a record, and in *route the one whose rule applies: a new reference, as head_of(). */
static PyObject *released_head(const taking *of, const publication *as, direction *to, PyObject **route)
{
    given said;
    unsigned alias;
    PyObject *head = field(*route, HEAD);
    int has_block = as->block_length != 0;
    if (head == NULL) return NULL;
    if (!has_block && PyBytes_CheckExact(head) && PyBytes_GET_SIZE(head) > 0) return Py_NewRef(head);
    if (!has_block && to->timed != NULL) return Py_NewRef(to->timed);
    give_nothing(&said);
    if (has_block && !read_properties(as->block, as->block_length, &said, &alias)) return Py_NewRef(Py_None);
    head = head_of(of, route, &to->variant, as, &said);
    if (head != NULL && !has_block && *route == to->route && is_timed(field(*route, FORM))) to->timed = Py_NewRef(head);
    return head;
}

/* A row for the message of a record, with a head that is a new reference and is handed over; Py_True: there is no message. */
static int append_released(taking *of, const staged *one, const publication *as, PyObject *route, PyObject *head, direction *to, released_rows *rows)
{
    int failed = 0;
    if (head == Py_True) {
        of->unrouted++;
    } else {
        PyObject *columns = field(route, COLUMNS), *tails = field(route, TAILS);
        failed = columns == NULL || tails == NULL || learn_tail(of, &to->tail, tails) < 0;
        if (!failed && (rows->ids == NULL || columns != to->open.columns)) {
            end_released(rows);
            failed = use_columns(of, route, &to->open) < 0 || begin_released(rows, &to->open, of->session) < 0;
        }
        failed = failed || append(to->open.bodies, body_of(&to->tail, as->packet_id, as->payload, as->length)) < 0 ||
                 PyList_Append(to->open.heads, head) < 0 || PyList_Append(rows->ids, one->id) < 0 || PyList_Append(rows->tokens, one->token) < 0;
    }
    Py_DECREF(head);
    return failed ? -1 : 0;
}

/* Rows for the messages of a record that go to several queues. 1: they are made; 0: the plain lane makes them; -1: an error is set. */
static int append_several(taking *of, const staged *one, const publication *as, release *all)
{
    given said;
    targets *to = &all->several;
    PyObject *reads = field(all->to.route, READS);
    if (reads == NULL || !PyTuple_CheckExact(reads)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "what a route reads is a tuple");
        return -1;
    }
    int more = can_link(of, as, &said, PyTuple_GET_SIZE(reads) > 0) ? make_heads(of, to, as, &said) : 0;
    for (Py_ssize_t i = 0; more == 1 && i < to->count; i++) {
        if (to->heads[i] == NULL || all->rows[i].ids != NULL) continue;
        if (use_columns(of, to->routes[i], &to->open[i]) < 0 || begin_released(&all->rows[i], &to->open[i], of->session) < 0) more = -1;
    }
    if (more == 1 && append_linked(of, QOS_2, to, as) < 0) more = -1;
    for (Py_ssize_t i = 0; more == 1 && i < to->count; i++) {
        if (to->heads[i] != NULL && (PyList_Append(all->rows[i].ids, one->id) < 0 || PyList_Append(all->rows[i].tokens, one->token) < 0)) more = -1;
    }
    return more;
}

/* A publication of QoS 2 that is released now is put for other gateways. */
static int note_released(const taking *of, PyObject *route, const staged *one, const publication *as)
{
    PyObject *block = PyTuple_GET_SIZE(one->kept) == 4 ? Py_NewRef(PyTuple_GET_ITEM(one->kept, 3)) : PyBytes_FromStringAndSize(NULL, 0);
    return add_sent(of, route, as, block, 0, PyTuple_Pack(3, of->session, one->id, one->token));
}

/* 1: released; 0: the plain lane releases it; -1: an error is set. */
static int release_one(taking *of, const staged *one, unsigned packet_id, PyObject *tokens, PyObject *taken, release *all)
{
    direction *to = &all->to;
    PyObject *kept = PyTuple_GET_ITEM(one->kept, 1);
    publication as = {.payload = (const unsigned char *)PyBytes_AS_STRING(kept) + STAGED_ID,
                      .length = PyBytes_GET_SIZE(kept) - STAGED_ID, .packet_id = packet_id, .block = (const unsigned char *)""};
    int keeps = (int)PyLong_AsLong(PyTuple_GET_ITEM(one->kept, 2)) & RETAIN, more = keeps ? can_keep_released(of, all) : 1;
    if (more != 1) return more;
    PyObject *block = PyTuple_GET_SIZE(one->kept) == 4 ? PyTuple_GET_ITEM(one->kept, 3) : NULL, *route = to->route;
    if (block != NULL && PyBytes_CheckExact(block)) {
        as.block = (const unsigned char *)PyBytes_AS_STRING(block);
        as.block_length = PyBytes_GET_SIZE(block);
    }
    if (all->count > 0) {
        more = append_several(of, one, &as, all);
    } else {
        PyObject *head = released_head(of, &as, to, &route);
        more = head == NULL ? -1 : head == Py_None ? 0 : append_released(of, one, &as, route, head, to, all->rows) < 0 ? -1 : 1;
        if (head == Py_None) Py_DECREF(head);
    }
    if (more != 1) return more;
    int failed = PyList_Append(taken, one->token) < 0 ||
                 PyDict_DelItem(of->inbound, one->id) < 0 || PyDict_DelItem(tokens, one->id) < 0 ||
                 ((to->wanted || keeps) && note_released(of, to->route, one, &as) < 0) || (keeps && keep_released(of, to->route, &as) < 0);
    return failed ? -1 : 1;
}

/* The tokens of the records that are taken, to be added to: a new reference. */
static PyObject *taken_of(const taking *of)
{
    taken_records *with = &of->turn->taken;
    PyObject *key = field(of->session, STAGED_KEY), *known;
    if (key == NULL) return NULL;
    if (!is_key(with->key, key) || PyDict_GET_SIZE(with->moves) > 0) {
        with->key = NULL;
        Py_XSETREF(with->said, PyObject_CallMethodOneArg(of->turn->lane, s_taken_records, of->session));
        if (with->said == NULL || !PyArg_ParseTuple(with->said, "SOO!", &known, &with->tokens, &PyDict_Type, &with->moves)) return NULL;
        with->key = known;
    }
    return Py_NewRef(with->tokens);
}

static int release_records(taking *of, PyObject *chunk)
{
    PyObject *tokens = dict_field(of->session, TOKENS);
    PyObject *taken = tokens != NULL ? taken_of(of) : NULL;
    if (taken == NULL) return -1;
    release all;
    memset(&all.to, 0, sizeof all.to);
    all.count = all.keeps_until = 0;
    all.chunk = chunk;
    all.rows[0] = (released_rows){NULL, NULL};
    staged one = {NULL, NULL, NULL}, before = one;
    Py_ssize_t count = 0;
    int more = PyList_CheckExact(taken) ? 1 : -1;
    if (more < 0) PyErr_SetString(PyExc_TypeError, "messages to be taken are a list");
    for (unsigned packet_id; more == 1 && (packet_id = read_pubrel(of, of->at)) != 0;) {
        more = find_staged(of, packet_id, tokens, &one);
        if (more == 1 && !is_like(&one, &before)) {
            more = end_topic(of, &all) < 0 ? -1 : lead_staged(of, &one, &all);
        }
        if (more == 1) more = release_one(of, &one, packet_id, tokens, taken, &all);
        if (more == 1 && answer(of, PUBCOMP, packet_id) < 0) more = -1;
        if (more != 1) break;
        of->at += 4;
        count++;
        forget_staged(&before);
        before = one;
        memset(&one, 0, sizeof one);
    }
    forget_staged(&one);
    forget_staged(&before);
    if (end_topic(of, &all) < 0) more = -1;
    leave_direction(&all.to);
    Py_DECREF(taken);
    of->completed += count;
    if (of->is_5) of->in_flight += count;
    return more < 0 ? -1 : count > 0;
}

/*
 * How many publications the lane has released; where it says the route, payload and properties of the last of them, too, this
 * is retained. -1: an error is set.
 */
static Py_ssize_t retain_released(taking *of, PyObject *said)
{
    if (!PyTuple_Check(said)) return PyLong_AsSsize_t(said);
    publication one = {0};
    PyObject *route, *payload, *block;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(said, "nOSS", &count, &route, &payload, &block)) return -1;
    one.payload = (const unsigned char *)PyBytes_AS_STRING(payload);
    one.length = PyBytes_GET_SIZE(payload);
    one.block = (const unsigned char *)PyBytes_AS_STRING(block);
    one.block_length = PyBytes_GET_SIZE(block);
    return keep_released(of, route, &one) < 0 ? -1 : count;
}

/* PUBRELs of publications that have subscribers. */
static int release_promised(taking *of, PyObject *chunk)
{
    if (of->kept != NULL && PyDict_GET_SIZE(of->kept) + 1 >= MOST_KEPT) return 0;
    if (forward(of->turn) < 0) return -1;
    PyObject *at = PyLong_FromSsize_t(of->at), *said = NULL;
    if (at != NULL) said = PyObject_CallMethodObjArgs(of->turn->lane, s_release, of->connection, chunk, at, NULL);
    Py_XDECREF(at);
    Py_ssize_t count = said == NULL ? -1 : retain_released(of, said);
    Py_XDECREF(said);
    if (count < 0 || count > (of->end - of->at) / 4) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "more was released than was asked for");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++, of->at += 4)
        if (answer(of, PUBCOMP, (unsigned)(of->data[of->at + 2] << 8 | of->data[of->at + 3])) < 0) return -1;
    of->completed += count;
    if (of->is_5) of->in_flight += count;
    return count > 0;
}

static int take_released(taking *of, PyObject *chunk)
{
    unsigned packet_id = read_pubrel(of, of->at);
    PyObject *id = packet_id != 0 ? PyLong_FromLong((long)packet_id) : NULL;
    if (id == NULL) return PyErr_Occurred() ? -1 : 0;
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(of->inbound, id));
    Py_DECREF(id);
    if (found == NULL) return PyErr_Occurred() ? -1 : 0;
    int done;
    if (!PyTuple_CheckExact(found)) done = PyObject_HasAttr(found, s_ids) ? release_run(of, found) : 0;
    else if ((done = release_records(of, chunk)) == 0) done = release_promised(of, chunk);
    Py_DECREF(found);
    return done;
}
