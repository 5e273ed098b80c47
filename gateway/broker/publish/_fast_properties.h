/*
 * The properties of a PUBLISH: see given.py, which does the same in Python.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum {
    PAYLOAD_FORMAT = 0x01, MESSAGE_EXPIRY = 0x02, CONTENT_TYPE = 0x03, RESPONSE_TOPIC = 0x08, CORRELATION_DATA = 0x09, TOPIC_ALIAS = 0x23,
    USER_PROPERTY = 0x26
};
enum { MOST_USERS = 100, LONGEST_REST = 128, EXPIRY_LENGTH = 5, ALIAS_LENGTH = 3 };

static PyObject *s_aliased;

typedef struct {
    const unsigned char *name, *value;
    Py_ssize_t name_length, value_length;
} user_property;

/* What the properties of a PUBLISH say. */
typedef struct {
    user_property users[MOST_USERS];
    unsigned char rest[LONGEST_REST]; /* the others, but for Topic Alias and expiry, as they came, with NULs for the correlation data */
    Py_ssize_t rest_length;           /* -1: too many */
    int asks;                         /* whether there is a response topic, or correlation data */
    int traced;                       /* whether there is a trace context: on a queue it is that of the span of this hop */
    const unsigned char *correlation;
    Py_ssize_t correlation_length;
    int count, has_expiry, says_text; /* says_text: the payload is said to be text */
    unsigned alias;                   /* 0: there is none */
    unsigned long expiry;
    Py_ssize_t expiry_at, alias_at;
} given;

/* There are none. */
static void give_nothing(given *said) 
{
    said->rest_length = said->count = said->has_expiry = said->says_text = said->asks = said->traced = 0, said->alias = 0;
    said->correlation = NULL, said->correlation_length = 0;
}

/* Whether these bytes are UTF-8. */
static int is_utf8(const unsigned char *at, Py_ssize_t length)
{
    Py_ssize_t i = 0;
    while (i < length && at[i] < 0x80) i++;
    if (i == length) return 1;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)at, length, NULL);
    if (text == NULL) PyErr_Clear();
    Py_XDECREF(text);
    return text != NULL;
}

/* Whether these bytes are UTF-8 without U+0000. */
static int is_text(const unsigned char *at, Py_ssize_t length)
{
    return memchr(at, 0, (size_t)length) == NULL && is_utf8(at, length);
}

/* Read the string with its length at *at. */
static int read_string(const unsigned char *block, Py_ssize_t length, Py_ssize_t *at, const unsigned char **text, Py_ssize_t *size)
{
    if (*at + 2 > length) return 0;
    *size = (Py_ssize_t)block[*at] << 8 | block[*at + 1];
    *text = block + *at + 2;
    *at += 2 + *size;
    return *at <= length;
}

/* Whether it is a response topic that nobody has to look at: ASCII that prints, without wildcards. */
static int is_plain_topic(const unsigned char *at, Py_ssize_t length)
{
    for (Py_ssize_t i = 0; i < length; i++)
        if (at[i] < 0x20 || at[i] > 0x7e || at[i] == '#' || at[i] == '+') return 0;
    return length > 0;
}

static unsigned long big_endian(const unsigned char *at, int bytes)
{
    unsigned long value = 0;
    while (bytes-- > 0) value = value << 8 | *at++;
    return value;
}

static int read_user(const unsigned char *block, Py_ssize_t length, Py_ssize_t *at, given *found, int count)
{
    static const char trace[] = "traceparent";
    user_property one;
    if (count == MOST_USERS || !read_string(block, length, at, &one.name, &one.name_length) || !read_string(block, length, at, &one.value, &one.value_length))
        return 0;
    if (found == NULL) return 1;
    if (!is_text(one.name, one.name_length) || !is_text(one.value, one.value_length)) return 0;
    if (one.name_length == sizeof trace - 1 && memcmp(one.name, trace, sizeof trace - 1) == 0) found->traced = 1;
    found->users[count] = one;
    return 1;
}

/* One property that stands once, whose kind is behind; *at: where it ends. */
static int read_other(const unsigned char *block, Py_ssize_t length, Py_ssize_t *at, unsigned kind, given *found, unsigned *alias)
{
    const unsigned char *text;
    Py_ssize_t size, begin = *at;
    switch (kind) {
    case PAYLOAD_FORMAT:
        if (begin >= length || block[begin] > 1) return 0;
        if (found != NULL) found->says_text = block[begin];
        *at += 1;
        return 1;
    case MESSAGE_EXPIRY:
        if ((*at += EXPIRY_LENGTH - 1) > length) return 0;
        if (found == NULL) return 1;
        found->expiry = big_endian(block + begin, EXPIRY_LENGTH - 1);
        found->expiry_at = begin - 1;
        return found->has_expiry = found->expiry != 0;
    case TOPIC_ALIAS:
        if ((*at += ALIAS_LENGTH - 1) > length) return 0;
        *alias = (unsigned)big_endian(block + begin, ALIAS_LENGTH - 1);
        if (found != NULL) found->alias_at = begin - 1;
        return *alias != 0;
    case CONTENT_TYPE: return read_string(block, length, at, &text, &size) && (found == NULL || is_text(text, size));
    case RESPONSE_TOPIC: return read_string(block, length, at, &text, &size) && (found == NULL || is_plain_topic(text, size));
    case CORRELATION_DATA: return read_string(block, length, at, &text, &size);
    default: return 0;
    }
}

/* A property of which a route may read more, as it came. */
static void add_rest(given *found, unsigned kind, const unsigned char *from, Py_ssize_t length)
{
    if (found->rest_length < 0 || found->rest_length + length > LONGEST_REST) {
        found->rest_length = -1;
        return;
    }
    memcpy(found->rest + found->rest_length, from, (size_t)length);
    if (kind == CORRELATION_DATA) memset(found->rest + found->rest_length + 3, 0, (size_t)length - 3); /* behind its length */
    found->rest_length += length;
}

/* Whether all of the properties are ordinary; *alias: the Topic Alias among them. `found` may be NULL. */
static int read_properties(const unsigned char *block, Py_ssize_t length, given *found, unsigned *alias)
{
    uint64_t seen = 0;
    int count = 0;
    *alias = 0;
    if (found != NULL) give_nothing(found);
    for (Py_ssize_t at = 0; at < length;) {
        Py_ssize_t begin = at;
        unsigned kind = block[at++];
        if (kind == USER_PROPERTY) {
            if (!read_user(block, length, &at, found, count++)) return 0;
            continue;
        }
        if (kind > USER_PROPERTY || seen >> kind & 1 || !read_other(block, length, &at, kind, found, alias)) return 0;
        seen |= (uint64_t)1 << kind;
        if (found == NULL) continue;
        if (kind == RESPONSE_TOPIC || kind == CORRELATION_DATA) found->asks = 1;
        if (kind == CORRELATION_DATA) found->correlation = block + begin + 3, found->correlation_length = at - begin - 3;
        if (kind != MESSAGE_EXPIRY && kind != TOPIC_ALIAS) add_rest(found, kind, block + begin, at - begin);
    }
    if (found != NULL) {
        found->count = count;
        found->alias = *alias;
    }
    return 1;
}

/* What others get of the properties: all but Topic Alias and expiry. A new reference. */
static PyObject *carried(const publication *one, const given *said)
{
    Py_ssize_t omitted[2] = {one->block_length, one->block_length}, lengths[2] = {0, 0};
    int alias_first = said->alias != 0 && said->has_expiry && said->alias_at < said->expiry_at;
    if (said->has_expiry) omitted[alias_first] = said->expiry_at, lengths[alias_first] = EXPIRY_LENGTH;
    if (said->alias != 0) omitted[!alias_first && said->has_expiry] = said->alias_at, lengths[!alias_first && said->has_expiry] = ALIAS_LENGTH;
    PyObject *block = PyBytes_FromStringAndSize(NULL, one->block_length - lengths[0] - lengths[1]);
    if (block == NULL) return NULL;
    char *to = PyBytes_AS_STRING(block);
    Py_ssize_t from = 0;
    for (int i = 0; i < 2; i++) {
        memcpy(to, one->block + from, (size_t)(omitted[i] - from));
        to += omitted[i] - from;
        from = omitted[i] + lengths[i];
    }
    memcpy(to, one->block + from, (size_t)(one->block_length - from));
    return block;
}
