/*
 * PUBLISH of QoS 0 and 1.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { MOST_LINKED = 16 };

static PyObject *s_asked, *s_linked, *s_forward;

/* What is looked up once for publications of one topic that follow one another. */
typedef struct {
    PyObject *route; /* a reference is held */
    PyObject *timed; /* the head that all have that came in this turn; held; NULL: there is none */
    PyObject *variant; /* the route of those with such properties as the last one; held; NULL: there is none */
    long path;
    int wanted; /* whether clients of other gateways want what is published there */
    open_columns open;
    tail_source tail;
    open_columns other_open; /* of the route that it has otherwise and that applied last */
    tail_source other_tail;
} direction;

static void leave_direction(direction *to)
{
    Py_CLEAR(to->route);
    Py_CLEAR(to->timed);
    Py_CLEAR(to->variant);
    leave_columns(&to->open);
    forget_tail(&to->tail);
    leave_columns(&to->other_open);
    forget_tail(&to->other_tail);
}

/* Whether clients of others want what is published there; -1: an error is set. */
static int is_wanted_elsewhere(PyObject *route)
{
    PyObject *gateways = field(route, ELSEWHERE);
    if (gateways == NULL || !PyTuple_CheckExact(gateways)) {
        if (gateways != NULL) PyErr_SetString(PyExc_TypeError, "other gateways are a tuple");
        return -1;
    }
    return PyTuple_GET_SIZE(gateways) > 0;
}

/* Lead along this route, whose reference is handed over. Its columns are opened with the first row. */
static int lead_to(const taking *of, direction *to, PyObject *route)
{
    Py_XSETREF(to->route, route);
    Py_CLEAR(to->timed);
    PyObject *tails = field(route, TAILS);
    to->wanted = is_wanted_elsewhere(route);
    return tails == NULL || to->wanted < 0 ? -1 : learn_tail(of, &to->tail, tails);
}

/* One more row. */
static int append_row(const taking *of, direction *to, unsigned packet_id, const unsigned char *payload, Py_ssize_t length)
{
    PyObject *head = field(to->route, HEAD);
    if (head == NULL || use_columns(of, to->route, &to->open) < 0 || append(to->open.bodies, body_of(&to->tail, packet_id, payload, length)) < 0) return -1;
    return append_head(of, to->route, &to->open, head);
}

/* That head as QueueRows.asked() makes it: a new reference, as head_of(); the one to it is handed over. */
static PyObject *asked(const taking *of, PyObject *route, PyObject *head, const given *said)
{
    PyObject *data = PyBytes_FromStringAndSize((const char *)said->correlation, said->correlation_length);
    PyObject *expiry = PyLong_FromUnsignedLong(said->has_expiry ? said->expiry : 0), *made = NULL;
    if (data != NULL && expiry != NULL) made = PyObject_CallMethodObjArgs(of->turn->lane, s_asked, route, head, data, expiry, NULL);
    Py_DECREF(head);
    Py_XDECREF(data);
    Py_XDECREF(expiry);
    if (made == NULL || made == Py_None || PyBytes_CheckExact(made)) return made;
    Py_DECREF(made);
    PyErr_SetString(PyExc_TypeError, "a head is bytes");
    return NULL;
}

/* The head of the message of a publication, and in *route the one whose rule applies: a new reference; Py_None: it is none of the fast
 * lane's; Py_True: there is no message. In *variant a reference is held to what *route may be. */
static PyObject *head_of(const taking *of, PyObject **route, PyObject **variant, const publication *one, const given *said)
{
    PyObject *reads = field(*route, READS);
    if (reads == NULL || !PyTuple_CheckExact(reads)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "what a route reads is a tuple");
        return NULL;
    }
    unsigned char properties[LONGEST_REST];
    Py_ssize_t length = said->traced && (said->asks || PyTuple_GET_SIZE(reads) > 0) ? -1 : deciding(reads, said, properties);
    if (length < 0) return Py_NewRef(Py_None);
    if (length > 0 || PyTuple_GET_SIZE(reads) > 0) {
        PyObject *found = variant_of(of, *route, properties, length);
        if (found == NULL || found == Py_None) return found;
        Py_XSETREF(*variant, found);
        *route = found;
    }
    PyObject *head = said->count == 0 && !said->has_expiry ? field(*route, HEAD) : Py_None;
    if (head == NULL) return NULL;
    head = PyBytes_CheckExact(head) && PyBytes_GET_SIZE(head) > 0 ? Py_NewRef(head) : form_head(of, route, variant, one, said);
    return said->asks && is_bytes(head) ? asked(of, *route, head, said) : head;
}

/* 1: one more row, with the head that its route has for all, or one of its own; 0: the plain lane makes it; -1: an error is set. */
static int append_publication(taking *of, direction *to, const publication *one, const given *said)
{
    if (to->path == path_unrouted) {
        of->unrouted++;
        return 1;
    }
    if (one->block_length == 0 && to->path == path_direct) return append_row(of, to, one->packet_id, one->payload, one->length) < 0 ? -1 : 1;
    PyObject *head = one->block_length == 0 ? Py_XNewRef(to->timed) : NULL, *route = to->route;
    if (head == NULL) {
        if ((head = head_of(of, &route, &to->variant, one, said)) == NULL) return -1;
        if (one->block_length == 0 && route == to->route && is_timed(field(route, FORM))) to->timed = Py_NewRef(head);
    }
    int done = head == Py_None ? 0 : 1;
    if (head == Py_True) {
        Py_DECREF(head);
        of->unrouted++;
        return 1;
    }
    open_columns *open = route == to->route ? &to->open : &to->other_open;
    tail_source *tail = route == to->route ? &to->tail : &to->other_tail;
    if (done == 1 && route != to->route) {
        PyObject *tails = field(route, TAILS);
        if (tails == NULL || learn_tail(of, tail, tails) < 0) done = -1;
    }
    if (done == 1 && (!is_bytes(head) || use_columns(of, route, open) < 0 ||
                      append(open->bodies, body_of(tail, one->packet_id, one->payload, one->length)) < 0 ||
                      append_head(of, route, open, head) < 0))
        done = -1;
    Py_DECREF(head);
    if (done < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a head is bytes");
    return done;
}

/* The path of the next publication, whose route is led to if it is the direct one; 0: there is none; -1: an error is set. */
static long path_of(const taking *of, unsigned first, upcoming *next, PyObject *cache, direction *to, PyObject **relayed)
{
    if (!next->is_other) return to->path;
    PyObject *route = next->route;
    next->route = NULL;
    long path = route != NULL ? fast_path_of(route) : STALE;
    if (path == STALE) {
        Py_XDECREF(route);
        PyObject *topic = PyBytes_FromStringAndSize((const char *)next->one.topic, next->one.topic_length);
        if (topic == NULL) return -1;
        route = route_of(of, cache, first, topic, &path);
        Py_DECREF(topic);
        if (route == NULL) return PyErr_Occurred() ? -1 : 0;
    }
    if (path == path_direct || path == path_formed || path == path_unrouted) {
        to->path = path;
        return lead_to(of, to, route) < 0 ? -1 : path;
    }
    if (path == path_fan_out || path == path_linked) *relayed = route;
    else Py_DECREF(route);
    return path;
}

/* -- other gateways -- */

/* One more publication that is put for other gateways; `block` and `staged` are stolen. */
static int add_sent(const taking *of, PyObject *route, const publication *one, PyObject *block, unsigned long expiry, PyObject *staged)
{
    turn *turn = of->turn;
    if (turn->sent == NULL) turn->sent = PyList_New(0);
    PyObject *sent = NULL;
    if (turn->sent == NULL || block == NULL || staged == NULL) {
        Py_XDECREF(block);
        Py_XDECREF(staged);
    } else {
        sent = Py_BuildValue("OOy#NkN", of->connection, route, (const char *)one->payload, one->length, block, expiry, staged);
    }
    return sent == NULL ? -1 : append(turn->sent, sent);
}

/* The same of QoS 0 or 1. `said`: its properties, if it has any. */
static int note_sent(const taking *of, PyObject *route, const publication *one, const given *said)
{
    int has_block = one->block_length != 0;
    PyObject *block = has_block ? carried(one, said) : PyBytes_FromStringAndSize(NULL, 0);
    return add_sent(of, route, one, block, has_block && said->has_expiry ? said->expiry : 0, Py_NewRef(Py_None));
}

/* Put all that there is of it, before what follows is. */
static int forward(turn *turn)
{
    PyObject *sent = turn->sent;
    if (sent == NULL) return 0;
    turn->sent = NULL;
    PyObject *done = PyObject_CallMethodOneArg(turn->lane, s_forward, sent);
    Py_DECREF(sent);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* -- several queues -- */

typedef struct {
    PyObject *routes[MOST_LINKED]; /* borrowed from the route */
    int goes_on[MOST_LINKED];      /* whether those behind it are considered where its rule applies */
    open_columns open[MOST_LINKED];
    tail_source tail[MOST_LINKED];
    PyObject *heads[MOST_LINKED]; /* of one publication; NULL: the rule does not apply; references are held */
    PyObject *made_by[MOST_LINKED]; /* the routes whose tails these have; references are held */
    Py_ssize_t count;
    unsigned reached;              /* those of them that the publications of a run reach */
    Py_ssize_t firsts[MOST_LINKED], rows; /* where these begin, and how many they are */
} targets;

static int find_targets(PyObject *linked, targets *to)
{
    memset(to, 0, sizeof *to);
    if (linked == NULL || !PyTuple_CheckExact(linked) || PyTuple_GET_SIZE(linked) > MOST_LINKED) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a route is linked to a few queues");
        return -1;
    }
    for (; to->count < PyTuple_GET_SIZE(linked); to->count++) {
        PyObject *each = PyTuple_GET_ITEM(linked, to->count);
        if (!is_tuple_of(each, 2) || !is_a(PyTuple_GET_ITEM(each, 0), A_ROUTE)) {
            PyErr_SetString(PyExc_TypeError, "a route is linked to routes");
            return -1;
        }
        to->routes[to->count] = PyTuple_GET_ITEM(each, 0);
        to->goes_on[to->count] = PyTuple_GET_ITEM(each, 1) == Py_True;
    }
    return 0;
}

static void forget_heads(targets *to)
{
    for (Py_ssize_t i = 0; i < to->count; i++) {
        Py_CLEAR(to->heads[i]);
        Py_CLEAR(to->made_by[i]);
    }
}

static void leave_targets(targets *to)
{
    for (Py_ssize_t i = 0; i < to->count; i++) {
        leave_columns(&to->open[i]);
        forget_tail(&to->tail[i]);
    }
    forget_heads(to);
}

/* The heads of one publication. 1: they are made; 0: the plain lane makes them; -1: an error is set. */
static int make_heads(const taking *of, targets *to, const publication *one, const given *said)
{
    forget_heads(to);
    if (said->traced) return 0; /* all of them are one span's */
    for (Py_ssize_t i = 0; i < to->count; i++) {
        PyObject *route = to->routes[i], *variant = NULL, *head = head_of(of, &route, &variant, one, said);
        to->made_by[i] = Py_XNewRef(route);
        Py_XDECREF(variant);
        if (head == NULL || head == Py_None) {
            Py_XDECREF(head);
            return head == NULL ? -1 : 0;
        }
        if (head == Py_True) {
            Py_DECREF(head);
            continue;
        }
        to->heads[i] = head;
        if (!to->goes_on[i]) break;
    }
    return 1;
}

/* Note the publications of a run, if they have reached several; QoS 0 keeps no order. */
static int end_run(const taking *of, unsigned first, targets *to)
{
    turn *turn = of->turn;
    Py_ssize_t count = 0, rows = to->rows;
    to->rows = 0;
    for (Py_ssize_t i = 0; i < to->count; i++) count += to->reached >> i & 1;
    if (rows == 0 || count < (first & 6 ? 1 : 2)) return 0; /* QoS 0 keeps no order */
    if (turn->linked == NULL && (turn->linked = PyObject_CallMethodNoArgs(turn->lane, s_linked)) == NULL) return -1;
    PyObject *destinations = PyTuple_New(count), *firsts = PyTuple_New(count);
    int failed = destinations == NULL || firsts == NULL;
    for (Py_ssize_t i = 0, at = 0; !failed && i < to->count; i++) {
        if (!(to->reached >> i & 1)) continue;
        PyObject *destination = field(to->open[i].columns, DESTINATION), *begin = PyLong_FromSsize_t(to->firsts[i]);
        failed = destination == NULL || begin == NULL;
        if (failed) {
            Py_XDECREF(begin);
            break;
        }
        PyTuple_SET_ITEM(destinations, at, Py_NewRef(destination));
        PyTuple_SET_ITEM(firsts, at++, begin);
    }
    if (failed) {
        Py_XDECREF(destinations);
        Py_XDECREF(firsts);
        return -1;
    }
    return append(turn->linked, Py_BuildValue("NNnO", destinations, firsts, rows, first & 6 ? of->connection : Py_None));
}

/* One more publication, whose heads are made. */
static int append_linked(taking *of, unsigned first, targets *to, const publication *one)
{
    unsigned reached = 0;
    for (Py_ssize_t i = 0; i < to->count; i++) {
        if (to->heads[i] == NULL) continue;
        reached |= 1u << i;
        PyObject *tails = field(to->made_by[i], TAILS);
        if (tails == NULL || learn_tail(of, &to->tail[i], tails) < 0 || use_columns(of, to->routes[i], &to->open[i]) < 0) return -1;
    }
    if (reached != to->reached && end_run(of, first, to) < 0) return -1;
    to->reached = reached;
    for (Py_ssize_t i = 0; i < to->count; i++) {
        if (to->heads[i] == NULL) continue;
        if (to->rows == 0) to->firsts[i] = PyList_GET_SIZE(to->open[i].heads);
        if (append(to->open[i].bodies, body_of(&to->tail[i], one->packet_id, one->payload, one->length)) < 0 ||
            PyList_Append(to->open[i].heads, to->heads[i]) < 0)
            return -1;
    }
    to->rows++;
    of->unrouted += reached == 0;
    return 0;
}

/* Whether the properties of a publication for several queues are ordinary. */
static int can_link(const taking *of, const publication *one, given *said, int has_readers)
{
    unsigned alias;
    give_nothing(said);
    if (one->block_length == 0) return 1;
    return !has_readers && read_properties(one->block, one->block_length, said, &alias) && said->count <= of->most_users && alias == 0 &&
           said->rest_length == 0;
}

/* Publications of one topic that go to several queues. 1: they are taken; 0: they are not; -1: an error is set. */
static int link_rows(taking *of, unsigned first, PyObject *route)
{
    targets to;
    given said;
    publication one, before = {0}, last = {0};
    Py_ssize_t rows = 0;
    PyObject *reads = field(route, READS);
    int wanted = is_wanted_elsewhere(route);
    int more = wanted < 0 || reads == NULL || !PyTuple_CheckExact(reads) || find_targets(field(route, LINKED), &to) < 0 ? -1 : 1;
    if (more < 0) return -1;
    while (more == 1 && read_publication(of, of->at, first, &one)) {
        if (!can_link(of, &one, &said, PyTuple_GET_SIZE(reads) > 0) || (before.topic != NULL && !same_topic(&one, &before))) break;
        before = one;
        if ((more = make_heads(of, &to, &one, &said)) != 1) break;
        if (append_linked(of, first, &to, &one) < 0 || (wanted && note_sent(of, route, &one, &said) < 0) || (one.packet_id && answer(of, PUBACK, one.packet_id) < 0)) {
            more = -1;
            break;
        }
        last = one;
        of->at = one.stop;
        rows++;
    }
    if (more >= 0 && end_run(of, first, &to) < 0) more = -1;
    if (more >= 0 && rows > 0 && first & RETAIN && keep(of, route, &last) < 0) more = -1;
    leave_targets(&to);
    if (first & 6) of->acknowledged += rows;
    else of->unanswered += rows;
    return more < 0 ? -1 : rows > 0;
}
