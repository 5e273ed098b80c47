/*
 * Packets in the bytes of one connection, and the answers to them. Nothing is read beyond these bytes: every length is
 * checked against their end before it is used.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { PUBLISH = 0x30, QOS_2 = 4, DUP = 8, RETAIN = 1, PUBACK = 0x40, PUBREC = 0x50, PUBREL = 0x62, PUBCOMP = 0x70, SUBSCRIBE = 0x82, UNSUBSCRIBE = 0xA2 };

/* What makes the tails of some routes: what is between head and payload, with the packet identifier. */
typedef struct {
    PyObject *tails;  /* a reference is held */
    PyObject *close;  /* a reference is held; NULL: the dict is asked for each number */
    Py_ssize_t width; /* 0: there is none */
} tail_source;

/* What publications are retained with; see FastLane.keeping. */
typedef struct {
    PyObject *asked; /* a reference is held; NULL: nobody has; None: they are not retained in this lane */
    PyObject *records, *number, *replaces; /* borrowed from it */
    Py_ssize_t most, more; /* records replaced in one commit; bytes that are retained more */
} keeping;

/* Where records of QoS 2 are staged, and taken from: the last that was asked for; see FastLane.records and .taken_records. */
typedef struct {
    PyObject *said; /* a reference is held; NULL: nobody has asked */
    PyObject *key, *puts, *heads, *bodies, *staged; /* borrowed from it */
} staging;

typedef struct {
    PyObject *said; /* the same */
    PyObject *key, *tokens, *moves; /* the same; while nothing is moved */
} taken_records;

/* What new routes are made of; see FastLane.sharing. */
typedef struct {
    PyObject *said; /* the same; None: each route is asked for */
    PyObject *routes, *may_publish; /* the same */
    Py_ssize_t most; /* routes of a connection */
} sharing;

/* One turn: what has arrived of several connections. All but `rest`, `time`, `sent`, `linked`, `keeping`, `tail` and what is said is borrowed. */
typedef struct {
    PyObject *lane, *replies, *pending, *now, *rest;
    PyObject *time; /* of receipt, as text; held; NULL: nobody has asked */
    PyObject *sent; /* a list of what clients of other gateways want and is not put for them yet; held; NULL: there is none */
    PyObject *linked; /* a list of what goes to several queues; held; NULL: nobody has asked; see FastLane.linked */
    keeping keeping;
    staging staging;
    taken_records taken;
    sharing sharing;
    tail_source tail; /* the last that was learnt: connections whose rule is the same have the same */
    long generation;
    Py_ssize_t size, unanswered, acknowledged, received, completed, unrouted;
} turn;

/* What one connection has sent, on its way into the open batch. References are borrowed from take_connection(). */
enum { FEW_ANSWERS = 32 }; /* bytes of them for which no object is made before they are complete */

typedef struct {
    turn *turn;
    PyObject *connection, *session, *inbound;
    const unsigned char *data;
    Py_ssize_t at, end, max_packet, longest, room, in_flight, most_users;
    int is_5;
    Py_ssize_t unanswered, acknowledged, received, completed, unrouted;
    PyObject *kept_route; /* of the last publication to be retained; a reference is held; NULL: there is none */
    const unsigned char *kept_payload, *kept_block;
    Py_ssize_t kept_length, kept_block_length;
    PyObject *kept; /* a dict: by route, payload and properties of the last ones before it, in order; NULL: there are none */
    PyObject *answers; /* bytes, used up to `answered`; NULL: they are in `few` */
    Py_ssize_t answered;
    unsigned char few[FEW_ANSWERS];
} taking;

/* -- frames -- */

/*
 * Where what follows a length at *start ends, and in *start where it begins; 0: beyond `end`, or malformed. At most four
 * bytes of length, in the shortest form only.
 */
static Py_ssize_t end_of(const taking *of, Py_ssize_t *start, Py_ssize_t end)
{
    Py_ssize_t length = 0, here = *start;
    for (int shift = 0; shift < 28; shift += 7, here++) {
        if (here >= end) return 0;
        unsigned char byte = of->data[here];
        length |= (Py_ssize_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (byte == 0 && shift) return 0;
            *start = here + 1;
            return *start + length > end ? 0 : *start + length;
        }
    }
    return 0;
}

/*
 * Where the frame at `at` ends, and in *start where its body begins; 0: incomplete, longer than allowed, or malformed: the
 * plain lane words the errors.
 */
static Py_ssize_t frame(const taking *of, Py_ssize_t at, Py_ssize_t *start)
{
    *start = at + 1;
    Py_ssize_t stop = end_of(of, start, of->end);
    return stop - at > of->max_packet ? 0 : stop;
}

typedef struct {
    const unsigned char *topic, *payload, *block;
    Py_ssize_t topic_length, length, block_length, stop;
    unsigned packet_id;
} publication;

/* Whether there is a PUBLISH at `at` that begins with this byte. */
static int read_publication(const taking *of, Py_ssize_t at, unsigned first, publication *found)
{
    const unsigned char *data = of->data;
    if (at + 4 > of->end || data[at] != first) return 0;
    Py_ssize_t start, stop = frame(of, at, &start);
    if (stop == 0 || start + 2 > stop) return 0;
    Py_ssize_t topic_length = (Py_ssize_t)data[start] << 8 | data[start + 1];
    Py_ssize_t mark = start + 2 + topic_length, body = mark + (first & 6 ? 2 : 0);
    if (body > stop) return 0;
    found->packet_id = first & 6 ? (unsigned)data[mark] << 8 | data[mark + 1] : 0;
    if (of->is_5) {
        Py_ssize_t begin = body;
        if ((body = end_of(of, &begin, stop)) == 0) return 0;
        found->block = data + begin;
        found->block_length = body - begin;
    } else {
        found->block = data + body;
        found->block_length = 0;
    }
    found->topic = data + start + 2;
    found->topic_length = topic_length;
    found->payload = data + body;
    found->length = stop - body;
    found->stop = stop;
    return !((first & 6 && found->packet_id == 0) || found->length > of->longest);
}

static int same_topic(const publication *one, const publication *other)
{
    return one->topic_length == other->topic_length &&
           memcmp(one->topic, other->topic, (size_t)one->topic_length) == 0;
}

/* The packet identifier of a plain PUBREL at `at`; 0: there is none. */
static unsigned read_pubrel(const taking *of, Py_ssize_t at)
{
    const unsigned char *data = of->data + at;
    if (at + 4 > of->end || data[0] != PUBREL || data[1] != 2) return 0;
    return (unsigned)data[2] << 8 | data[3];
}

/* How many more publications may be in flight: of QoS 1 and 2 in 5.0, of QoS 2 in 3.x. */
static Py_ssize_t room(const taking *of) { return of->room - of->in_flight - PyDict_GET_SIZE(of->inbound); }

/* -- answers: one object for all of a connection -- */

static unsigned char *room_for_answer(taking *of, Py_ssize_t length)
{
    if (of->answers == NULL && of->answered + length > FEW_ANSWERS) { /* no packet that is answered is shorter than its answer */
        if ((of->answers = PyBytes_FromStringAndSize(NULL, of->answered + of->end - of->at + length)) == NULL) return NULL;
        memcpy(PyBytes_AS_STRING(of->answers), of->few, (size_t)of->answered);
    }
    unsigned char *at = (of->answers != NULL ? (unsigned char *)PyBytes_AS_STRING(of->answers) : of->few) + of->answered;
    of->answered += length;
    return at;
}

static int answer(taking *of, unsigned char first, unsigned packet_id)
{
    unsigned char *at = room_for_answer(of, 4);
    if (at == NULL) return -1;
    at[0] = first;
    at[1] = 2;
    at[2] = (unsigned char)(packet_id >> 8);
    at[3] = (unsigned char)packet_id;
    return 0;
}

/* The same for one that nobody gets, of a client that is told so. */
static int answer_unwanted(taking *of, unsigned char first, unsigned packet_id)
{
    enum { NO_MATCHING_SUBSCRIBERS = 0x10 };
    unsigned char *at = room_for_answer(of, 5);
    if (at == NULL) return -1;
    at[0] = first;
    at[1] = 3;
    at[2] = (unsigned char)(packet_id >> 8);
    at[3] = (unsigned char)packet_id;
    at[4] = NO_MATCHING_SUBSCRIBERS;
    return 0;
}

/* Add them to what the connection gets with the commit. */
static int hand_in_answers(taking *of)
{
    if (of->answered == 0) return 0;
    if (of->answers == NULL) of->answers = PyBytes_FromStringAndSize((const char *)of->few, of->answered);
    else if (_PyBytes_Resize(&of->answers, of->answered) < 0) return -1;
    if (of->answers == NULL) return -1;
    PyObject *made = PyList_New(1);
    if (made == NULL) return -1;
    PyList_SET_ITEM(made, 0, Py_NewRef(of->answers));
    PyObject *all = PyDict_SetDefault(of->turn->replies, of->connection, made);
    int failed = all == NULL || (all != made && PyList_Append(all, of->answers) < 0) ? -1 : 0;
    Py_DECREF(made);
    Py_CLEAR(of->answers);
    return failed;
}
