/*
 * Publications that have subscribers, and what takes publications of QoS 0 and 1 whoever gets them.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

static PyObject *s_relay;

/* What is read of publications for subscribers, as columns: properties of each where they have any, heads and bodies where there is a
 * queue, (route, head, body) of each row where there are several. All expire at the same time, or not at all. */
typedef struct {
    PyObject *payloads, *bodies, *blocks, *heads; /* references are held */
    PyObject *variant;                            /* the route of those with such properties as the last one; held, or NULL */
    tail_source tail;
    int is_put;     /* whether there is a queue */
    int is_linked;  /* whether there are several: these are `several` */
    int is_reading; /* whether the rules for these look at user properties */
    targets several;
    int has_expiry;
    unsigned long expiry;
} for_subscribers;

/* Whether a publication is on the topic of a route; -1: an error is set. */
static int is_on(const taking *of, PyObject *route, const publication *one, const given *said)
{
    PyObject *topic = field(route, WIRE_TOPIC);
    if (topic == NULL || !PyBytes_CheckExact(topic)) return -1;
    if (said->alias == 0) return PyBytes_GET_SIZE(topic) == one->topic_length && !memcmp(PyBytes_AS_STRING(topic), one->topic, (size_t)one->topic_length);
    upcoming next = {.one = *one, .alias = said->alias};
    int known = resolve_alias(of, &next, NULL);
    if (known == 1) known = PyObject_RichCompareBool(next.topic, topic, Py_EQ);
    Py_XDECREF(next.topic);
    return known;
}

/* Whether two routes lead to the same queue; -1: an error is set. */
static int lead_alike(PyObject *route, PyObject *other)
{
    if (route == other) return 1;
    PyObject *queue = field(route, QUEUE), *others = field(other, QUEUE);
    if (queue == NULL || others == NULL) return -1;
    return field(route, COLUMNS) == field(other, COLUMNS) ? PyObject_RichCompareBool(queue, others, Py_EQ) : 0;
}

/* The row of one more on the queue. 1: it is made; 0: the plain lane makes it; -1: an error is set. */
static int make_row(const taking *of, PyObject *route, const publication *one, const given *said, for_subscribers *to)
{
    if (said->asks || said->traced) return 0; /* what is noted of it is noted once, and the subscribers may have no room */
    PyObject *chosen = route, *head = head_of(of, &chosen, &to->variant, one, said);
    if (head == NULL) return -1;
    int done = head == Py_None || head == Py_True ? 0 : lead_alike(chosen, route);
    if (done != 1) {
        Py_DECREF(head);
        return done;
    }
    PyObject *tails = field(chosen, TAILS);
    if (tails == NULL || learn_tail(of, &to->tail, tails) < 0 || append(to->bodies, body_of(&to->tail, one->packet_id, one->payload, one->length)) < 0) {
        Py_DECREF(head);
        return -1;
    }
    return append(to->heads, head) < 0 ? -1 : 1;
}

/* The rows of one more on several queues. As make_row(). */
static int make_rows(const taking *of, const publication *one, const given *said, for_subscribers *to)
{
    targets *several = &to->several;
    if (said->rest_length != 0 || (to->is_reading && one->block_length != 0)) return 0;
    int done = make_heads(of, several, one, said);
    PyObject *rows = done == 1 ? PyList_New(0) : NULL;
    for (Py_ssize_t i = 0; rows != NULL && i < several->count; i++) {
        if (several->heads[i] == NULL) continue;
        PyObject *tails = field(several->made_by[i], TAILS), *body = NULL;
        if (tails != NULL && learn_tail(of, &several->tail[i], tails) == 0) body = body_of(&several->tail[i], one->packet_id, one->payload, one->length);
        if (body == NULL || append(rows, PyTuple_Pack(3, several->routes[i], several->heads[i], body)) < 0) Py_CLEAR(rows);
        Py_XDECREF(body);
    }
    if (done != 1) return done;
    int failed = rows == NULL || append(to->heads, PyList_AsTuple(rows)) < 0;
    Py_XDECREF(rows);
    return failed ? -1 : 1;
}

/* One more for subscribers. 1: it is read; 0: it ends what is like the first; -1: an error is set. */
static int read_relayed(taking *of, unsigned first, PyObject *route, const publication *one, for_subscribers *to)
{
    given said;
    unsigned alias;
    give_nothing(&said);
    if (one->block_length != 0 && (!read_properties(one->block, one->block_length, &said, &alias) || said.count > of->most_users)) return 0;
    if (said.says_text && !is_utf8(one->payload, one->length)) return 0;
    int fits = is_on(of, route, one, &said);
    if (fits != 1) return fits;
    Py_ssize_t length = one->block_length - (said.has_expiry ? EXPIRY_LENGTH : 0) - (said.alias != 0 ? ALIAS_LENGTH : 0);
    if (PyList_GET_SIZE(to->payloads) > 0) {
        if ((length > 0) != (PyList_GET_SIZE(to->blocks) > 0) || said.has_expiry != to->has_expiry) return 0;
        if (said.has_expiry && said.expiry != to->expiry) return 0;
    }
    if (to->is_linked && (fits = make_rows(of, one, &said, to)) != 1) return fits;
    if (to->is_put && (fits = make_row(of, route, one, &said, to)) != 1) return fits;
    to->has_expiry = said.has_expiry;
    if (said.has_expiry) to->expiry = said.expiry;
    if (length > 0 && append(to->blocks, carried(one, &said)) < 0) return -1;
    if (append(to->payloads, PyBytes_FromStringAndSize((const char *)one->payload, one->length)) < 0) return -1;
    return one->packet_id && answer(of, PUBACK, one->packet_id) < 0 ? -1 : 1;
}

/* Hand what was read to the lane: whether it is taken; -1: an error is set. */
static int hand_to_subscribers(const taking *of, PyObject *route, const for_subscribers *to)
{
    PyObject *expiry = PyLong_FromUnsignedLong(to->has_expiry ? to->expiry : 0), *said = NULL;
    if (expiry != NULL)
        said = PyObject_CallMethodObjArgs(of->turn->lane, s_relay, of->connection, route, to->payloads, to->bodies, to->blocks, to->heads, expiry, NULL);
    int taken = said == NULL ? -1 : PyObject_IsTrue(said);
    Py_XDECREF(expiry);
    Py_XDECREF(said);
    return taken;
}

/* Publications of one topic that has subscribers. 1: they are taken; 0: they are not; -1: an error is set. */
static int relay(taking *of, unsigned first, PyObject *route)
{
    for_subscribers to = {.payloads = PyList_New(0), .bodies = PyList_New(0), .blocks = PyList_New(0), .heads = PyList_New(0)};
    PyObject *head = field(route, HEAD), *most = field(route, MOST_COPIED), *form = field(route, FORM);
    Py_ssize_t fits = most != NULL ? PyLong_AsSsize_t(most) : -1, answered = of->answered, at = of->at;
    int lists = to.payloads != NULL && to.bodies != NULL && to.blocks != NULL && to.heads != NULL;
    int more = !lists || head == NULL || form == NULL || PyErr_Occurred() ? -1 : 1;
    to.is_put = more == 1 && (PyObject_IsTrue(head) || (form != Py_False && form != Py_None));
    PyObject *linked = field(route, LINKED), *reads = field(route, READS);
    to.is_linked = linked != NULL && PyTuple_CheckExact(linked) && PyTuple_GET_SIZE(linked) > 0;
    to.is_reading = reads != NULL && PyTuple_CheckExact(reads) && PyTuple_GET_SIZE(reads) > 0;
    if (linked == NULL || reads == NULL || (to.is_linked && find_targets(linked, &to.several) < 0)) more = -1;
    publication one, last = {0};
    for (; more == 1 && fits-- > 0 && read_publication(of, at, first, &one); at = one.stop) {
        if ((more = read_relayed(of, first, route, &one, &to)) != 1) break;
        last = one;
    }
    if (more >= 0 && at > of->at && forward(of->turn) < 0) more = -1;
    int done = more < 0 ? -1 : at > of->at ? hand_to_subscribers(of, route, &to) : 0;
    if (done == 1 && first & RETAIN && keep(of, route, &last) < 0) done = -1;
    if (done == 1) {
        Py_ssize_t rows = PyList_GET_SIZE(to.payloads);
        of->at = at;
        if (first & 6) of->acknowledged += rows;
        else of->unanswered += rows;
    } else {
        of->answered = answered;
    }
    forget_tail(&to.tail);
    if (to.is_linked) leave_targets(&to.several);
    Py_XDECREF(to.variant);
    Py_XDECREF(to.payloads);
    Py_XDECREF(to.bodies);
    Py_XDECREF(to.blocks);
    Py_XDECREF(to.heads);
    return done;
}

/* 1: packets were taken, and something else that is ordinary may follow; 0: it does not; -1: an error is set. */
static int take_publications(taking *of, unsigned first)
{
    int keeps = first & RETAIN ? can_keep(of) : 1;
    if (keeps != 1 || (first & DUP && !(first & 6))) return keeps < 0 ? -1 : 0;
    PyObject *cache = quick_cache_of(of, first), *relayed = NULL;
    if (cache == NULL) return -1;
    Py_INCREF(cache);
    Py_ssize_t rows = 0;
    publication before = {0};
    given said;
    unsigned alias;
    upcoming ahead[AHEAD];
    direction to = {0};
    int more = 1, count, done = AHEAD;
    while (more == 1 && done == AHEAD && (count = look_ahead(of, first, &before, cache, ahead)) != 0) {
        more = count < 0 ? -1 : 1;
        for (done = 0; more == 1 && done < count; done++) {
            const publication *one = &ahead[done].one;
            if (first & RETAIN && of->kept != NULL && PyDict_GET_SIZE(of->kept) + 1 >= MOST_KEPT) break;
            give_nothing(&said);
            if (one->block_length != 0 &&
                (!read_properties(one->block, one->block_length, &said, &alias) || said.count > of->most_users))
                break;
            long path = path_of(of, first, &ahead[done], cache, &to, &relayed);
            if (path < 0) more = -1;
            if ((path != path_direct && path != path_formed && path != path_unrouted) || (said.says_text && !is_utf8(one->payload, one->length))) break;
            int taken = append_publication(of, &to, one, &said);
            if (taken == 1 && to.wanted && note_sent(of, to.route, one, &said) < 0) more = -1;
            int is_told = path == path_unrouted && of->is_5;
            if (taken < 0 || (taken && one->packet_id && (is_told ? answer_unwanted(of, PUBACK, one->packet_id) : answer(of, PUBACK, one->packet_id)) < 0) ||
                (taken && first & RETAIN && keep(of, to.route, one) < 0))
                more = -1;
            if (taken != 1 || more < 0) break;
            before = *one;
            if (ahead[done].topic != NULL) before.topic = NULL; /* its bytes are those of an alias */
            Py_CLEAR(ahead[done].topic);
            of->at = one->stop;
            rows++;
        }
        if (count > 0) forget_ahead(ahead, done, count);
    }
    leave_direction(&to);
    Py_DECREF(cache);
    if (first & 6) of->acknowledged += rows;
    else of->unanswered += rows;
    if (more == 1 && relayed != NULL) more = fast_path_of(relayed) == path_linked ? link_rows(of, first, relayed) : relay(of, first, relayed);
    else if (more == 1) more = rows > 0;
    Py_XDECREF(relayed);
    return more;
}
