/*
 * Byte strings that are alike, packed: what they share is written once. Heads of one rule differ in a topic's levels, a
 * client and the lengths these make, a tenth of their bytes.
 *
 * alike.py says what is written; it has a twin of each function, with the same result to the byte, which runs where
 * there was no compiler at installation and with which the tests compare these. Nothing is kept between two calls.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_alike.h"

enum { PATTERN = 0, REFERENCE = 1, PLAIN = 2, FIRST_FAMILY = 3 };
enum { MOST_FAMILIES = 8, MOST_RUNS = 32, SHORTEST = 4, REACH = 256, SHIFT = 96, MOST_MISSED = 4, MOST_LEARNT = 64 };
enum { LONGEST = 1 << 16, MOST_TOGETHER = 16 << 20 };
enum { AHEAD = 2, LINES = 11 }; /* values lie anywhere: the memory of the next but one is asked for in time */

typedef struct {
    uint32_t at, length;
} stretch;

typedef struct {
    const unsigned char *text;
    Py_ssize_t length;
    int runs;
    stretch run[MOST_RUNS];
} family;

typedef struct {
    unsigned char *bytes;
    size_t used, room;
} output;

static int make_room(output *out, size_t more)
{
    if (out->room - out->used >= more) return 0;
    size_t room = out->room * 2 + more;
    unsigned char *bytes = PyMem_Realloc(out->bytes, room);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    out->bytes = bytes;
    out->room = room;
    return 0;
}

/* Room was made before. */
static void put_number(output *out, size_t number)
{
    for (; number >= 0x80; number >>= 7) out->bytes[out->used++] = (unsigned char)(number | 0x80);
    out->bytes[out->used++] = (unsigned char)number;
}

static void put_text(output *out, const unsigned char *text, Py_ssize_t length)
{
    put_number(out, (size_t)length);
    memcpy(out->bytes + out->used, text, (size_t)length);
    out->used += (size_t)length;
}

static uint32_t four(const unsigned char *at)
{
    uint32_t found;
    memcpy(&found, at, sizeof found);
    return found;
}

/* -- does a value have the runs of a family's pattern, one behind the other? -- */

/* Fills `at` with their places in the value. */
static int fits(const family *of, const unsigned char *value, Py_ssize_t length, uint32_t *at)
{
    Py_ssize_t from = 0;
    for (int k = 0; k < of->runs; k++) {
        const unsigned char *text = of->text + of->run[k].at;
        Py_ssize_t wanted = of->run[k].length, last = length - wanted;
        if (last > from + REACH) last = from + REACH;
        uint32_t begin = four(text);
        for (;; from++) {
            if (from > last) return 0;
            if (four(value + from) == begin && memcmp(value + from, text, (size_t)wanted) == 0) break;
        }
        at[k] = (uint32_t)from;
        from += wanted;
    }
    return 1;
}

static int put_gaps(output *out, const family *of, int number, const unsigned char *value, Py_ssize_t length,
                    const uint32_t *at)
{
    if (make_room(out, (size_t)length + 1 + 3 * (MOST_RUNS + 1)) < 0) return -1;
    out->bytes[out->used++] = (unsigned char)(FIRST_FAMILY + number);
    Py_ssize_t from = 0;
    for (int k = 0; k < of->runs; k++) {
        put_text(out, value + from, at[k] - from);
        from = at[k] + of->run[k].length;
    }
    put_text(out, value + from, length - from);
    return 0;
}

/* -- what a value and a family have in common -- */

/* The nearest place behind *one and *other from which four bytes are the same: least shift of both together, then of
   the first. */
static int meet(const unsigned char *text, Py_ssize_t end, Py_ssize_t *one, const unsigned char *value,
                Py_ssize_t length, Py_ssize_t *other)
{
    for (Py_ssize_t shift = 0; shift <= SHIFT; shift++) {
        Py_ssize_t first = *other + shift + SHORTEST - length, last = end - SHORTEST - *one;
        for (Py_ssize_t a = first > 0 ? first : 0; a <= shift && a <= last; a++)
            if (four(text + *one + a) == four(value + *other + shift - a)) {
                *one += a;
                *other += shift - a;
                return 1;
            }
    }
    return 0;
}

/* The runs of `of` as far as the value has them too, into `learnt`; returns how many bytes these are. */
static Py_ssize_t learn(const family *of, const unsigned char *value, Py_ssize_t length, family *learnt)
{
    Py_ssize_t other = 0, kept = 0;
    int missed = 0;
    learnt->text = of->text;
    learnt->length = of->length;
    learnt->runs = 0;
    for (int k = 0; k < of->runs && missed < MOST_MISSED; k++) {
        Py_ssize_t one = of->run[k].at, end = one + of->run[k].length;
        while (learnt->runs < MOST_RUNS && end - one >= SHORTEST) {
            if (!meet(of->text, end, &one, value, length, &other)) {
                missed++;
                break;
            }
            Py_ssize_t same = SHORTEST;
            while (one + same < end && other + same < length && of->text[one + same] == value[other + same]) same++;
            learnt->run[learnt->runs].at = (uint32_t)one;
            learnt->run[learnt->runs++].length = (uint32_t)same;
            one += same;
            other += same;
            kept += same;
        }
    }
    return kept;
}

static int put_pattern(output *out, const family *of, int number)
{
    if (make_room(out, 3 + 6 * MOST_RUNS) < 0) return -1;
    out->bytes[out->used++] = PATTERN;
    out->bytes[out->used++] = (unsigned char)number;
    out->bytes[out->used++] = (unsigned char)of->runs;
    uint32_t from = 0;
    for (int k = 0; k < of->runs; k++) {
        put_number(out, of->run[k].at - from);
        put_number(out, of->run[k].length);
        from = of->run[k].at + of->run[k].length;
    }
    return 0;
}

typedef struct {
    family of[MOST_FAMILIES], better;
    int families, recent, learnt;
} learning;

/* The family a value is like enough to belong to, with its new pattern in `better`; -1: none. */
static int alike(learning *all, const unsigned char *value, Py_ssize_t length)
{
    for (int n = 0; n < all->families && all->learnt < MOST_LEARNT; n++) {
        int number = (all->recent + n) % all->families;
        const family *of = &all->of[number];
        Py_ssize_t longer = of->length > length ? of->length : length;
        all->learnt++;
        Py_ssize_t kept = learn(of, value, length, &all->better);
        if (all->families < MOST_FAMILIES ? 8 * kept >= 7 * longer : 2 * kept >= longer) return number;
    }
    return -1;
}

/* A value whose family's pattern does not fit, or that has none. */
static int put_unlike(output *out, learning *all, const unsigned char *value, Py_ssize_t length)
{
    uint32_t at[MOST_RUNS];
    int is_short = length > LONGEST, number = is_short ? -1 : alike(all, value, length);
    if (number >= 0 && fits(&all->better, value, length, at)) {
        all->of[number] = all->better;
        all->recent = number;
        if (put_pattern(out, &all->of[number], number) < 0) return -1;
        return put_gaps(out, &all->of[number], number, value, length, at);
    }
    if (make_room(out, (size_t)length + 6) < 0) return -1;
    int is_new = all->families < MOST_FAMILIES && !is_short && length >= SHORTEST;
    out->bytes[out->used++] = is_new ? REFERENCE : PLAIN;
    put_text(out, value, length);
    if (is_new) {
        all->recent = all->families;
        all->of[all->families++] = (family){value, length, 1, {{0, (uint32_t)length}}};
    }
    return 0;
}

static int put_value(output *out, learning *all, const unsigned char *value, Py_ssize_t length)
{
    uint32_t at[MOST_RUNS];
    for (int n = 0; n < all->families; n++) {
        int number = (all->recent + n) % all->families;
        if (fits(&all->of[number], value, length, at)) {
            all->recent = number;
            return put_gaps(out, &all->of[number], number, value, length, at);
        }
    }
    return put_unlike(out, all, value, length);
}

const char alike_pack_doc[] =
"pack(values, /) -> bytes or None\n\n"
"The byte strings, with what they share written once. None: nothing is gained, or they are too long together.";

static int pack_all(output *out, learning *all, PyObject *values, Py_ssize_t total)
{
    uint32_t numbers[2] = {(uint32_t)PyList_GET_SIZE(values), (uint32_t)total};
    if (make_room(out, sizeof numbers) < 0) return -1;
    for (int n = 0; n < 2; n++)
        for (int shift = 0; shift < 32; shift += 8) out->bytes[out->used++] = (unsigned char)(numbers[n] >> shift);
    for (Py_ssize_t row = 0; row < PyList_GET_SIZE(values); row++) {
        PyObject *value = PyList_GET_ITEM(values, row);
        if (row + AHEAD < PyList_GET_SIZE(values)) {
            const char *next = (const char *)PyList_GET_ITEM(values, row + AHEAD);
            for (int line = 0; line < LINES; line++) prefetch(next + 64 * line);
        }
        if (put_value(out, all, (const unsigned char *)PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)) < 0) return -1;
    }
    return 0;
}

PyObject *alike_pack(PyObject *module, PyObject *values)
{
    (void)module;
    Py_ssize_t total = 0;
    int is_list = PyList_Check(values);
    for (Py_ssize_t row = 0; is_list && row < PyList_GET_SIZE(values) && total <= MOST_TOGETHER; row++) {
        PyObject *value = PyList_GET_ITEM(values, row);
        if (!PyBytes_Check(value)) is_list = 0;
        else total += PyBytes_GET_SIZE(value);
    }
    if (!is_list) {
        PyErr_SetString(PyExc_TypeError, "pack(list of bytes)");
        return NULL;
    }
    if (total > MOST_TOGETHER || PyList_GET_SIZE(values) > MOST_TOGETHER) Py_RETURN_NONE;
    output out = {NULL, 0, 0};
    learning all;
    all.families = all.recent = all.learnt = 0;
    PyObject *packed = NULL;
    if (make_room(&out, 4096 + 64 * (size_t)PyList_GET_SIZE(values)) == 0 && pack_all(&out, &all, values, total) == 0)
        packed = out.used < (size_t)total ? PyBytes_FromStringAndSize((char *)out.bytes, (Py_ssize_t)out.used)
                                          : Py_NewRef(Py_None);
    PyMem_Free(out.bytes);
    return packed;
}

/* -- and back: nothing is believed of what is read -- */

typedef struct {
    const unsigned char *at, *end;
} input;

/* -1: it ends too early, or is longer than four bytes. */
static Py_ssize_t get_number(input *in)
{
    Py_ssize_t number = 0;
    for (int shift = 0; shift < 28; shift += 7) {
        if (in->at == in->end) return -1;
        unsigned char one = *in->at++;
        number |= (Py_ssize_t)(one & 0x7F) << shift;
        if (one < 0x80) return number;
    }
    return -1;
}

typedef struct {
    unsigned char *text, *at, *end;
} filled;

enum { STEP = 16 };

/* `there`: bytes that may be read from `text` on. Texts are mostly shorter than a call of memcpy is worth. */
static inline const char *append_text(filled *out, const unsigned char *text, Py_ssize_t length, Py_ssize_t there)
{
    Py_ssize_t room = out->end - out->at;
    if (length > room) return "packed values are longer than they say";
    if (length <= STEP && there >= STEP && room >= STEP) memcpy(out->at, text, STEP);
    else memcpy(out->at, text, (size_t)length);
    out->at += length;
    return NULL;
}

static const char *TORN = "packed values end too early", *FOLLOWED = "something follows packed values";
static const char *SHORT = "packed values are shorter than they say";

static const char *append_next(filled *out, input *in)
{
    Py_ssize_t length = get_number(in);
    if (length < 0 || length > in->end - in->at) return TORN;
    const char *problem = append_text(out, in->at, length, in->end - in->at);
    in->at += length;
    return problem;
}

static const char *get_pattern(input *in, family *of, int families)
{
    if (in->end - in->at < 2) return TORN;
    int number = *in->at++, runs = *in->at++;
    if (number >= families || runs > MOST_RUNS) return "a pattern of packed values is not one";
    Py_ssize_t from = 0;
    for (int k = 0; k < runs; k++) {
        Py_ssize_t gap = get_number(in), length = get_number(in);
        if (gap < 0 || length < 0) return TORN;
        if (gap + length > of[number].length - from) return "a pattern of packed values is longer than its reference";
        of[number].run[k].at = (uint32_t)(from + gap);
        of[number].run[k].length = (uint32_t)length;
        from += gap + length;
    }
    of[number].runs = runs;
    return NULL;
}

static const char *get_alike(input *in, const family *of, filled *out)
{
    const char *problem = NULL;
    for (int k = 0; problem == NULL && k < of->runs; k++)
        if ((problem = append_next(out, in)) == NULL)
            problem = append_text(out, of->text + of->run[k].at, of->run[k].length, of->length - of->run[k].at);
    return problem != NULL ? problem : append_next(out, in);
}

/* One value, with the patterns before it. */
static const char *get_value(input *in, family *of, int *families, filled *out)
{
    const char *problem;
    while (in->at < in->end && *in->at == PATTERN) {
        in->at++;
        if ((problem = get_pattern(in, of, *families)) != NULL) return problem;
    }
    if (in->at == in->end) return TORN;
    int kind = *in->at++;
    if (kind >= FIRST_FAMILY) {
        if (kind - FIRST_FAMILY >= *families) return "packed values name one that is not there";
        return get_alike(in, &of[kind - FIRST_FAMILY], out);
    }
    const unsigned char *begin = out->at;
    if ((problem = append_next(out, in)) != NULL) return problem;
    if (kind == REFERENCE) {
        if (*families == MOST_FAMILIES) return "packed values have too many references";
        Py_ssize_t length = out->at - begin; /* as it lies in what is read, which stays */
        of[(*families)++] = (family){in->at - length, length, 1, {{0, (uint32_t)length}}};
    }
    return NULL;
}

static const char *unpack_all(input *in, Py_ssize_t count, filled *out, unsigned char *ends)
{
    family of[MOST_FAMILIES];
    int families = 0;
    memset(ends, 0, 4);
    for (Py_ssize_t row = 0; row < count; row++) {
        const char *problem = get_value(in, of, &families, out);
        if (problem != NULL) return problem;
        uint32_t end = (uint32_t)(out->at - out->text);
        ends += 4;
        for (int n = 0; n < 4; n++) ends[n] = (unsigned char)(end >> 8 * n);
    }
    if (in->at != in->end) return FOLLOWED;
    return out->at == out->end ? NULL : SHORT;
}

const char alike_unpack_doc[] =
"unpack(packed, most, /) -> (bytes, bytes)\n\n"
"What was packed: where each of the byte strings begins and the last one ends, as offsets() has it, and all of them back\n"
"to back. ValueError if it was not, or is longer than `most`.";

static uint32_t little(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

Py_ssize_t alike_count(const Py_buffer *packed, Py_ssize_t most)
{
    const unsigned char *at = packed->buf;
    Py_ssize_t count = packed->len >= 8 ? little(at) : 0, total = packed->len >= 8 ? little(at + 4) : 0;
    if (packed->len < 8 || total > most || count > packed->len - 8) {
        PyErr_SetString(PyExc_ValueError, packed->len < 8 ? TORN : total > most ? "packed values are too long together"
                                                                              : "there are not as many packed values");
        return -1;
    }
    return count;
}

/* All of them through one buffer, which is read while it is still near. */
int alike_each(const Py_buffer *packed, int (*take)(void *context, const unsigned char *text, Py_ssize_t length),
               void *context)
{
    const unsigned char *begin = packed->buf;
    input in = {begin + 8, begin + packed->len};
    Py_ssize_t count = little(begin), left = little(begin + 4);
    unsigned char *text = PyMem_Malloc((size_t)left + STEP);
    if (text == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    family of[MOST_FAMILIES];
    int families = 0, taken = 0;
    const char *problem = NULL;
    for (Py_ssize_t row = 0; row < count && problem == NULL && taken == 0; row++) {
        filled out = {text, text, text + left};
        problem = get_value(&in, of, &families, &out);
        left -= out.at - text;
        if (problem == NULL) taken = take(context, text, out.at - text);
    }
    PyMem_Free(text);
    if (taken < 0) return -1;
    if (problem == NULL && in.at != in.end) problem = FOLLOWED;
    if (problem == NULL && left != 0) problem = SHORT;
    if (problem != NULL) PyErr_SetString(PyExc_ValueError, problem);
    return problem == NULL ? 0 : -1;
}

static PyObject *unpacked(const Py_buffer *packed, Py_ssize_t most)
{
    Py_ssize_t count = alike_count(packed, most);
    if (count < 0) return NULL;
    input in = {(const unsigned char *)packed->buf + 8, (const unsigned char *)packed->buf + packed->len};
    Py_ssize_t total = little(in.at - 4);
    PyObject *ends = PyBytes_FromStringAndSize(NULL, 4 * (count + 1));
    PyObject *text = ends == NULL ? NULL : PyBytes_FromStringAndSize(NULL, total), *found = NULL;
    if (text != NULL) {
        unsigned char *begin = (unsigned char *)PyBytes_AS_STRING(text);
        filled out = {begin, begin, begin + total};
        const char *problem = unpack_all(&in, count, &out, (unsigned char *)PyBytes_AS_STRING(ends));
        if (problem != NULL) PyErr_SetString(PyExc_ValueError, problem);
        else found = PyTuple_Pack(2, ends, text);
    }
    Py_XDECREF(ends);
    Py_XDECREF(text);
    return found;
}

PyObject *alike_unpack(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Py_buffer packed;
    Py_ssize_t most;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "unpack(packed, most)");
        return NULL;
    }
    if ((most = PyLong_AsSsize_t(args[1])) == -1 && PyErr_Occurred()) return NULL;
    if (PyObject_GetBuffer(args[0], &packed, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *found = unpacked(&packed, most);
    PyBuffer_Release(&packed);
    return found;
}
