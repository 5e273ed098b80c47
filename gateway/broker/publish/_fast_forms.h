/*
 * Heads of messages that are not all alike: what a form makes of them. JSON is read, and its fields are written, in Python
 * (bridge/payload.py, bridge/form.py); what else is not done here is asked of the lane.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { MOST_PARTS = 32, LONGEST_NAME = 64, MOST_NAMES = 4096, LONGEST_ELEMENT = 1 << 20 };

static PyObject *s_form, *s_head, *s_time, *s_escaped, *s_write;
static PyObject *escaped_names; /* a dict: names of user properties as they stand in folders */

/* -- heads -- */

/* A name as it stands in folders: borrowed from the dict of names. NULL: an error is set. */
static PyObject *escaped_name(const taking *of, const user_property *one)
{
    PyObject *name = PyBytes_FromStringAndSize((const char *)one->name, one->name_length);
    PyObject *found = name != NULL ? PyDict_GetItemWithError(escaped_names, name) : NULL;
    if (found == NULL && name != NULL && !PyErr_Occurred()) {
        PyObject *made = PyObject_CallMethodOneArg(of->turn->lane, s_escaped, name);
        if (made != NULL && !PyBytes_CheckExact(made)) PyErr_SetString(PyExc_TypeError, "an escaped name is bytes");
        else if (made != NULL && PyDict_SetItem(escaped_names, name, made) == 0) found = made; /* the dict holds it */
        Py_XDECREF(made);
    }
    Py_XDECREF(name);
    return found;
}

static Py_ssize_t escaped_length(const user_property *one)
{
    Py_ssize_t length = one->value_length;
    for (Py_ssize_t i = 0; i < one->value_length; i++) switch (one->value[i]) {
        case '&': length += 4; break;
        case '<': case '>': length += 3; break;
        case '"': case '\'': length += 5; break;
    }
    return length;
}

static char *copy(char *to, const void *from, Py_ssize_t length)
{
    memcpy(to, from, (size_t)length);
    return to + length;
}

static char *copy_escaped(char *to, const user_property *one, Py_ssize_t length)
{
    if (length == one->value_length) return copy(to, one->value, length);
    for (Py_ssize_t i = 0; i < one->value_length; i++) switch (one->value[i]) {
        case '&': to = copy(to, "&amp;", 5); break;
        case '<': to = copy(to, "&lt;", 4); break;
        case '>': to = copy(to, "&gt;", 4); break;
        case '"': to = copy(to, "&quot;", 6); break;
        case '\'': to = copy(to, "&apos;", 6); break;
        default: *to++ = (char)one->value[i];
    }
    return to;
}

static char *copy_number(char *to, Py_ssize_t value)
{
    for (int shift = 0; shift < 32; shift += 8) *to++ = (char)(value >> shift);
    return to;
}

static char *copy_bytes(char *to, PyObject *bytes) { return copy(to, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes)); }

static int is_bytes(PyObject *value) { return value != NULL && PyBytes_CheckExact(value); }

/* The time of receipt of what has arrived, as text: borrowed. NULL: an error is set. */
static PyObject *time_of(turn *turn)
{
    if (turn->time == NULL && (turn->time = PyObject_CallMethodNoArgs(turn->lane, s_time)) == NULL) return NULL;
    if (is_bytes(turn->time)) return turn->time;
    PyErr_SetString(PyExc_TypeError, "the time of receipt is bytes");
    return NULL;
}

/* The payload to be looked into, made when it is first asked for: borrowed. NULL: an error is set. */
static PyObject *look_into(const publication *one, PyObject **body)
{
    if (*body != NULL) return *body;
    PyObject *payload = PyBytes_FromStringAndSize((const char *)one->payload, one->length);
    if (payload != NULL) *body = PyObject_CallOneArg((PyObject *)classes_of[A_BODY], payload);
    Py_XDECREF(payload);
    return *body;
}

/* Forget an error, if the plain lane is to meet it again; whether it is forgotten. */
static int left_to_plain(void)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return 0;
    PyErr_Clear();
    return 1;
}

/* Whether a rule takes a payload; 0: the plain lane says why not; -1: an error is set. */
static int is_taken(PyObject *check, const publication *one, PyObject **body)
{
    if (check == Py_None) return 1;
    PyObject *said = look_into(one, body) != NULL ? PyObject_CallOneArg(check, *body) : NULL;
    Py_XDECREF(said);
    return said != NULL ? 1 : left_to_plain() ? 0 : -1;
}

/* The form of a route: borrowed; Py_None: there is none; Py_True: there are no messages. NULL: an error is set. */
static PyObject *form_of(const taking *of, PyObject *route)
{
    PyObject *form = field(route, FORM);
    if (form == Py_False) {
        PyObject *asked = PyObject_CallMethodOneArg(of->turn->lane, s_form, route);
        Py_XDECREF(asked);
        form = asked != NULL ? field(route, FORM) : NULL;
    }
    if (form == NULL || form == Py_None || form == Py_True || is_a(form, A_FORM)) return form;
    PyErr_SetString(PyExc_TypeError, "a form is of another class");
    return NULL;
}

/* The route among a route and those it has otherwise whose rule applies to the payload, and its form: both borrowed. Py_None: the
 * plain lane says what becomes of it; Py_True: no rule applies; NULL: an error is set. */
static PyObject *choose(const taking *of, PyObject **route, const publication *one, PyObject **body)
{
    while (*route != Py_None) {
        PyObject *form = form_of(of, *route), *condition;
        if (form == NULL || form == Py_None || form == Py_True) return form;
        if ((condition = field(form, CONDITION)) == NULL) return NULL;
        if (condition == Py_None) return form;
        PyObject *holds = look_into(one, body) != NULL ? PyObject_CallOneArg(condition, *body) : NULL;
        int yes = holds != NULL ? PyObject_IsTrue(holds) : -1;
        Py_XDECREF(holds);
        if (yes < 0) return left_to_plain() ? Py_None : NULL;
        if (yes == 1) return form;
        if ((*route = field(*route, OTHERWISE)) == NULL) return NULL;
        if (*route != Py_None && !is_a(*route, A_ROUTE)) {
            PyErr_SetString(PyExc_TypeError, "otherwise there is a route");
            return NULL;
        }
    }
    return Py_None;
}

/* What the cell of a user property says: a new reference; Py_None: the lane is asked instead, because it is missing. */
static PyObject *user_text(PyObject *cell, const given *said)
{
    PyObject *name = field(cell, NAME), *begin = field(cell, BEGIN), *end = field(cell, END), *required = field(cell, REQUIRED);
    if (required == NULL || !is_bytes(name) || !is_bytes(begin) || !is_bytes(end)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "what the cell of a user property has is bytes");
        return NULL;
    }
    int i = 0;
    while (i < said->count && (said->users[i].name_length != PyBytes_GET_SIZE(name) ||
                               memcmp(said->users[i].name, PyBytes_AS_STRING(name), (size_t)PyBytes_GET_SIZE(name)) != 0))
        i++;
    if (i == said->count) return required == Py_True ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(NULL, 0);
    Py_ssize_t length = escaped_length(&said->users[i]);
    PyObject *made = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(begin) + length + PyBytes_GET_SIZE(end));
    if (made != NULL) copy_bytes(copy_escaped(copy_bytes(PyBytes_AS_STRING(made), begin), &said->users[i], length), end);
    return made;
}

/* What a part of a form says: a new reference; Py_None: the lane is asked instead. */
static PyObject *text_of(const taking *of, PyObject *part, const publication *one, const given *said, PyObject **body)
{
    if (PyBytes_CheckExact(part)) return Py_NewRef(part);
    if (is_a(part, A_TIME_CELL)) return Py_XNewRef(time_of(of->turn));
    if (is_a(part, A_PACKET_ID_CELL)) return PyBytes_FromFormat("%u", one->packet_id);
    if (is_a(part, A_USER_CELL)) return user_text(part, said);
    if (!is_a(part, A_JSON_CELL)) return Py_NewRef(Py_None);
    if (look_into(one, body) == NULL) return NULL;
    PyObject *text = PyObject_CallMethodOneArg(part, s_write, *body);
    if (text == NULL) return left_to_plain() ? Py_NewRef(Py_None) : NULL;
    if (PyBytes_CheckExact(text)) return text;
    Py_DECREF(text);
    PyErr_SetString(PyExc_TypeError, "what a cell writes is bytes");
    return NULL;
}

/* User properties as they stand in the folder: their names, the lengths of their values, and of all together. 0: the lane is asked
 * instead, because a name is taken, stands twice or is long; -1: an error is set. */
static int escape_users(const taking *of, PyObject *taken, const given *said, PyObject **names, Py_ssize_t *lengths, Py_ssize_t *inside)
{
    if (PyDict_GET_SIZE(escaped_names) > MOST_NAMES - MOST_USERS) PyDict_Clear(escaped_names);
    for (int i = 0; i < said->count; i++) {
        if (said->users[i].name_length > LONGEST_NAME) return 0;
        if ((names[i] = escaped_name(of, &said->users[i])) == NULL) return -1;
        int known = PySet_GET_SIZE(taken) != 0 ? PySet_Contains(taken, names[i]) : 0;
        for (int j = 0; j < i && known == 0; j++) known = names[i] == names[j];
        if (known != 0) return known < 0 ? -1 : 0;
        lengths[i] = escaped_length(&said->users[i]);
        *inside += 2 * PyBytes_GET_SIZE(names[i]) + 5 + lengths[i];
    }
    return 1;
}

/* The head of a form around a usr folder: the texts of its parts, and user properties. */
static PyObject *head_around(PyObject *form, PyObject **texts, Py_ssize_t parts, const given *said, PyObject **names, const Py_ssize_t *lengths, Py_ssize_t inside)
{
    PyObject *before = field(form, BEFORE), *fixed = field(form, FIXED), *after = field(form, AFTER);
    long length = number(form, LENGTH);
    if (PyErr_Occurred() || !is_bytes(before) || !is_bytes(fixed) || !is_bytes(after)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "the frame of a head is bytes");
        return NULL;
    }
    Py_ssize_t size = 11 + inside, blanks = -size & 3; /* with <usr> and </usr> */
    size += blanks;
    PyObject *made = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(before) + 8 + PyBytes_GET_SIZE(fixed) + size + PyBytes_GET_SIZE(after));
    if (made == NULL) return NULL;
    char *to = copy_bytes(PyBytes_AS_STRING(made), before);
    to = copy_number(to, (length != 0 ? length : rfh2_length) + 4 + size);
    to = copy_number(copy_bytes(to, fixed), size);
    to = copy(to, "<usr>", 5);
    for (Py_ssize_t i = 0; i < parts; i++) to = copy_bytes(to, texts[i]);
    for (int i = 0; said != NULL && i < said->count; i++) {
        *to++ = '<';
        to = copy_bytes(to, names[i]);
        *to++ = '>';
        to = copy(copy_escaped(to, &said->users[i], lengths[i]), "</", 2);
        to = copy_bytes(to, names[i]);
        *to++ = '>';
    }
    to = copy(to, "</usr>", 6);
    memset(to, ' ', (size_t)blanks);
    copy_bytes(to + blanks, after);
    return made;
}

/* The head of a form for one publication, which carries its user properties or does not: a new reference. Py_None: the lane is
 * asked instead. */
static PyObject *head_filled(const taking *of, PyObject *form, const publication *one, const given *said, int carries, PyObject **body)
{
    PyObject *taken = field(form, TAKEN), *usr = field(form, USR), *texts[MOST_PARTS], *names[MOST_USERS];
    if (taken == NULL || usr == NULL) return NULL;
    if (!PyTuple_CheckExact(usr) || !PyAnySet_CheckExact(taken) || PyTuple_GET_SIZE(usr) > MOST_PARTS) return Py_NewRef(Py_None);
    Py_ssize_t parts = PyTuple_GET_SIZE(usr), inside = 0, known = 0, lengths[MOST_USERS];
    int possible = carries ? escape_users(of, taken, said, names, lengths, &inside) : 1;
    for (; possible == 1 && known < parts; known++) {
        PyObject *text = text_of(of, PyTuple_GET_ITEM(usr, known), one, said, body);
        if (text == NULL || text == Py_None) {
            possible = text == NULL ? -1 : 0;
            Py_XDECREF(text);
            break;
        }
        texts[known] = text;
        inside += PyBytes_GET_SIZE(text);
    }
    PyObject *made = NULL;
    if (possible == 1 && inside != 0) made = head_around(form, texts, parts, carries ? said : NULL, names, lengths, inside);
    else if (possible >= 0) made = Py_NewRef(Py_None);
    while (known > 0) Py_DECREF(texts[--known]);
    return made;
}

/* The head of a form around the time of receipt: a new reference. */
static PyObject *head_with_time(const taking *of, PyObject *around)
{
    PyObject *time = time_of(of->turn);
    if (time == NULL) return NULL;
    if (!PyTuple_CheckExact(around) || PyTuple_GET_SIZE(around) != 2 || !is_bytes(PyTuple_GET_ITEM(around, 0)) ||
        !is_bytes(PyTuple_GET_ITEM(around, 1))) {
        PyErr_SetString(PyExc_TypeError, "what is around the time of receipt is bytes");
        return NULL;
    }
    PyObject *front = PyTuple_GET_ITEM(around, 0), *rest = PyTuple_GET_ITEM(around, 1);
    PyObject *made = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(front) + PyBytes_GET_SIZE(time) + PyBytes_GET_SIZE(rest));
    if (made != NULL) copy_bytes(copy_bytes(copy_bytes(PyBytes_AS_STRING(made), front), time), rest);
    return made;
}

/* Any head, as the lane makes it, and in *route the one whose tail it has, to which a reference is held in *variant: a new reference;
 * Py_None: it is none of the fast lane's. */
static PyObject *head_asked(const taking *of, PyObject **route, PyObject **variant, const publication *one, const given *said)
{
    PyObject *users = PyList_New(0), *answer = NULL;
    int failed = users == NULL;
    for (int i = 0; !failed && i < said->count; i++) {
        const user_property *user = &said->users[i];
        PyObject *pair = Py_BuildValue("y#y#", (const char *)user->name, user->name_length, (const char *)user->value, user->value_length);
        failed = pair == NULL || PyList_Append(users, pair) < 0;
        Py_XDECREF(pair);
    }
    PyObject *expiry = said->has_expiry ? PyLong_FromUnsignedLong(said->expiry) : Py_NewRef(Py_None);
    PyObject *payload = PyBytes_FromStringAndSize((const char *)one->payload, one->length);
    PyObject *id = PyLong_FromLong((long)one->packet_id);
    if (!failed && expiry != NULL && payload != NULL && id != NULL)
        answer = PyObject_CallMethodObjArgs(of->turn->lane, s_head, *route, users, expiry, payload, id, NULL);
    Py_XDECREF(users);
    Py_XDECREF(expiry);
    Py_XDECREF(payload);
    Py_XDECREF(id);
    if (answer == NULL || answer == Py_None) return answer;
    PyObject *head = NULL;
    if (is_tuple_of(answer, 2) && is_a(PyTuple_GET_ITEM(answer, 0), A_ROUTE)) {
        head = Py_NewRef(PyTuple_GET_ITEM(answer, 1));
        if (PyTuple_GET_ITEM(answer, 0) != *route) {
            *route = Py_NewRef(PyTuple_GET_ITEM(answer, 0));
            Py_XSETREF(*variant, *route);
        }
    } else {
        PyErr_SetString(PyExc_TypeError, "the lane makes a head, and says for which route");
    }
    Py_DECREF(answer);
    return head;
}

/* The same head with another expiry; the reference to it is handed over. */
static PyObject *with_expiry(PyObject *head, unsigned long seconds, long longest)
{
    Py_ssize_t tenths = (Py_ssize_t)seconds * 10;
    if (tenths < 1) tenths = 1;
    if (tenths > longest) tenths = longest;
    PyObject *made = PyBytes_GET_SIZE(head) >= expiry_at + 4 ? PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(head)) : NULL;
    if (made != NULL) {
        copy_bytes(PyBytes_AS_STRING(made), head);
        copy_number(PyBytes_AS_STRING(made) + expiry_at, tenths);
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "a head begins with a descriptor");
    }
    Py_DECREF(head);
    return made;
}

/* Whether all heads of a form without user properties and expiry are alike within a turn. */
static int is_timed(PyObject *form)
{
    return form != NULL && is_a(form, A_FORM) && field(form, AROUND_TIME) != Py_None && field(form, CHECK) == Py_None &&
           field(form, CONDITION) == Py_None;
}

/* The head of a message by the form of its route, or of that which it has otherwise and applies: a new reference; Py_None: it is none
 * of the fast lane's; Py_True: there is no message. *variant: as in head_asked(). */
static PyObject *form_head(const taking *of, PyObject **route, PyObject **variant, const publication *one, const given *said)
{
    PyObject *body = NULL, *made = NULL, *form = choose(of, route, one, &body);
    if (form == NULL || form == Py_None || form == Py_True) {
        Py_XDECREF(body);
        return Py_XNewRef(form);
    }
    PyObject *check = field(form, CHECK), *carries = field(form, CARRIES), *constant = field(form, FORM_HEAD), *around = field(form, AROUND_TIME);
    long longest = number(form, LONGEST_EXPIRY);
    int failed = check == NULL || carries == NULL || constant == NULL || around == NULL || PyErr_Occurred();
    int taken = failed ? -1 : is_taken(check, one, &body);
    if (taken != 1 || said->traced) made = taken < 0 ? NULL : Py_NewRef(Py_None);
    else if (said->count != 0 && carries == Py_True) made = head_filled(of, form, one, said, 1, &body);
    else if (is_bytes(constant)) made = Py_NewRef(constant);
    else if (around != Py_None) made = head_with_time(of, around);
    else made = head_filled(of, form, one, said, 0, &body);
    Py_XDECREF(body);
    if (made == Py_None && taken == 1) {
        Py_DECREF(made);
        return head_asked(of, route, variant, one, said);
    }
    if (made == NULL || made == Py_None) return made;
    return said->has_expiry && longest > 0 ? with_expiry(made, said->expiry, longest) : made;
}
