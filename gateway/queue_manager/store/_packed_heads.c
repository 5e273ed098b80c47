/*
 * Columns of similar byte strings, packed: what they share is written once. Heads of one rule differ in a topic's levels,
 * a client and the lengths these make, a tenth of their bytes.
 *
 * packed_heads.py describes the bytes. It has the same functions in Python, with the same result to the byte: the tests
 * compare the two, and unpacking in Python is what runs where there was no compiler at installation.
 *
 * A Packing keeps its patterns from one column to the next, and what it wrote for values that are packed again
 * (_packing_cache.h): these are the same objects, so their bytes need not be compared.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_packed_heads.h"
#include "_packing_cache.h"
#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { PATTERN = 0, REFERENCE = 1, PLAIN = 2, FIRST_FAMILY = 3 };
enum { MOST_FAMILIES = 8, MOST_RUNS = 32, SHORTEST = 4, REACH = 256, SHIFT = 96, MOST_MISSED = 4, MOST_NARROWED = 64 };
enum { LONGEST = 1 << 16, MOST_TOGETHER = 16 << 20, MOST_COLUMNS = 1024, MOST_ROOM = 1 << 18 };
enum { AHEAD = 4, FAR_AHEAD = 24, LINES = 11 }; /* rows ahead whose memory is prefetched: values lie anywhere */

typedef struct {
    uint32_t at, length;
} run_of_text; /* a part of a family's reference */

typedef struct {
    const unsigned char *text;
    Py_ssize_t length;
    int runs;
    run_of_text run[MOST_RUNS];
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

static void give_back(output *out)
{
    PyMem_Free(out->bytes);
    *out = (output){NULL, 0, 0};
}

/* The caller has made room. */
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

/* -- whether a value has the runs of a family's pattern, one after the other -- */

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

static int put_gaps(output *out, const family *of, const unsigned char *value, Py_ssize_t length, const uint32_t *at)
{
    if (make_room(out, (size_t)length + 3 * (MOST_RUNS + 1)) < 0) return -1;
    Py_ssize_t from = 0;
    for (int k = 0; k < of->runs; k++) {
        put_text(out, value + from, at[k] - from);
        from = at[k] + of->run[k].length;
    }
    put_text(out, value + from, length - from);
    return 0;
}

/* -- what a value and a family have in common -- */

/* The nearest places from *one and *other on where four bytes are the same: least shift of both together, then of the
   first. */
static int next_common(const unsigned char *text, Py_ssize_t end, Py_ssize_t *one, const unsigned char *value,
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

/* A pattern with the runs of `of` as far as the value has them too; returns how many bytes these are. */
static Py_ssize_t narrow(const family *of, const unsigned char *value, Py_ssize_t length, family *narrowed)
{
    Py_ssize_t other = 0, kept = 0;
    int missed = 0;
    narrowed->text = of->text;
    narrowed->length = of->length;
    narrowed->runs = 0;
    for (int k = 0; k < of->runs && missed < MOST_MISSED; k++) {
        Py_ssize_t one = of->run[k].at, end = one + of->run[k].length;
        while (narrowed->runs < MOST_RUNS && end - one >= SHORTEST) {
            if (!next_common(of->text, end, &one, value, length, &other)) {
                missed++;
                break;
            }
            Py_ssize_t same = SHORTEST;
            while (one + same < end && other + same < length && of->text[one + same] == value[other + same]) same++;
            narrowed->run[narrowed->runs].at = (uint32_t)one;
            narrowed->run[narrowed->runs++].length = (uint32_t)same;
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

/* -- columns, one after the other -- */

typedef struct {
    PyObject_HEAD
    /* A family's text is that of a value of an earlier column until this column has a reference for the family. The
       texts of the runs, which alone decide what is written for a value, are the same in both. */
    family of[MOST_FAMILIES], better;
    PyObject *reference[MOST_FAMILIES]; /* the value whose text it is: held */
    int families, recent, columns;
    int opened, narrowings;          /* of this column: families with a reference, attempts to narrow a pattern */
    int number[MOST_FAMILIES];       /* the family's in this column; -1: it has no reference yet */
    int is_announced[MOST_FAMILIES]; /* whether its pattern has been written in this column */
    uint32_t patterns;               /* how often a pattern has changed */
    cache remembered;
    output out; /* its memory is kept for the next column, unless it is large */
} packing;

static void forget_families(packing *all)
{
    for (int n = 0; n < all->families; n++) Py_CLEAR(all->reference[n]);
    all->families = all->recent = all->columns = 0;
    all->patterns++;
}

static void begin_column(packing *all)
{
    if (all->columns == MOST_COLUMNS) forget_families(all);
    all->columns++;
    all->opened = all->narrowings = 0;
    for (int n = 0; n < MOST_FAMILIES; n++) all->number[n] = -1;
    evict_unused(&all->remembered);
}

/* The family that a value is similar enough to belong to, with its new pattern in `better`; -1: none. */
static int similar_family(packing *all, const unsigned char *value, Py_ssize_t length)
{
    for (int n = 0; n < all->families && all->narrowings < MOST_NARROWED; n++) {
        int number = (all->recent + n) % all->families;
        const family *of = &all->of[number];
        Py_ssize_t longer = of->length > length ? of->length : length;
        all->narrowings++;
        Py_ssize_t kept = narrow(of, value, length, &all->better);
        if (all->families < MOST_FAMILIES ? 8 * kept >= 7 * longer : 2 * kept >= longer) return number;
    }
    return -1;
}

static int put_whole(output *out, int kind, PyObject *value)
{
    if (make_room(out, (size_t)PyBytes_GET_SIZE(value) + 6) < 0) return -1;
    out->bytes[out->used++] = (unsigned char)kind;
    put_text(out, (const unsigned char *)PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    return 0;
}

/* The first value of a family in this column: it is written whole. `at`: where it has the runs. */
static int put_reference(output *out, packing *all, int n, PyObject *value, const uint32_t *at)
{
    family *of = &all->of[n];
    Py_INCREF(value);
    Py_XSETREF(all->reference[n], value);
    of->text = (const unsigned char *)PyBytes_AS_STRING(value);
    of->length = PyBytes_GET_SIZE(value);
    for (int k = 0; k < of->runs; k++) of->run[k].at = at[k];
    all->is_announced[n] = of->runs == 1 && of->run[0].length == of->length;
    all->number[n] = all->opened++;
    all->recent = n;
    return put_whole(out, REFERENCE, value);
}

/* A further value of a family. `at`: where it has the runs; `unfit`: families whose pattern does not fit it. */
static int put_member(output *out, packing *all, int n, PyObject *object, const uint32_t *at, unsigned unfit)
{
    const family *of = &all->of[n];
    all->recent = n;
    if (all->number[n] < 0) return put_reference(out, all, n, object, at);
    if (!all->is_announced[n] && put_pattern(out, of, all->number[n]) < 0) return -1;
    all->is_announced[n] = 1;
    if (make_room(out, 1) < 0) return -1;
    out->bytes[out->used++] = (unsigned char)(FIRST_FAMILY + all->number[n]);
    size_t begin = out->used;
    const unsigned char *value = (const unsigned char *)PyBytes_AS_STRING(object);
    if (put_gaps(out, of, value, PyBytes_GET_SIZE(object), at) < 0) return -1;
    remember(&all->remembered, object, all->patterns, n, unfit, out->bytes + begin, out->used - begin);
    return 0;
}

/* A value that no family's pattern fits. */
static int put_unfitting(output *out, packing *all, PyObject *object)
{
    const unsigned char *value = (const unsigned char *)PyBytes_AS_STRING(object);
    Py_ssize_t length = PyBytes_GET_SIZE(object);
    uint32_t at[MOST_RUNS];
    int is_short = length <= LONGEST, n = is_short ? similar_family(all, value, length) : -1;
    if (n >= 0 && fits(&all->better, value, length, at)) {
        all->of[n] = all->better;
        all->is_announced[n] = 0;
        all->patterns++;
        return put_member(out, all, n, object, at, 0);
    }
    if (!is_short || length < SHORTEST || all->families == MOST_FAMILIES) return put_whole(out, PLAIN, object);
    n = all->families++;
    all->of[n] = (family){NULL, 0, 1, {{0, (uint32_t)length}}};
    at[0] = 0;
    return put_reference(out, all, n, object, at);
}

static int put_remembered(output *out, packing *all, int n, const entry *known)
{
    if (make_room(out, 1 + MOST_GAPS) < 0) return -1;
    all->recent = n;
    out->bytes[out->used++] = (unsigned char)(FIRST_FAMILY + all->number[n]);
    memcpy(out->bytes + out->used, known->gaps, MOST_GAPS);
    out->used += known->length;
    return 0;
}

/* `known`: the value's entry in the cache, if it has one. */
static int put_value(output *out, packing *all, PyObject *object, entry *known)
{
    uint32_t at[MOST_RUNS];
    if (known != NULL && known->patterns != all->patterns) known = NULL;
    unsigned unfit = known != NULL ? known->unfit : 0;
    for (int left = all->families, n = all->recent; left > 0; left--, n = n + 1 == all->families ? 0 : n + 1) {
        if (unfit >> n & 1) continue;
        if (known != NULL && known->family == n && all->number[n] >= 0 && all->is_announced[n]) {
            known->unfit = (unsigned char)unfit;
            known->is_used = 1;
            return put_remembered(out, all, n, known);
        }
        if (fits(&all->of[n], (const unsigned char *)PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object), at))
            return put_member(out, all, n, object, at, unfit);
        unfit |= 1u << n;
    }
    return put_unfitting(out, all, object);
}

/* The cache's entry of a value that is soon to be packed; where there is none, the value is prefetched. */
static entry *prefetch_value(packing *all, PyObject *values, Py_ssize_t row)
{
    if (row >= PyList_GET_SIZE(values)) return NULL;
    PyObject *next = PyList_GET_ITEM(values, row);
    entry *known = find(&all->remembered, next);
    for (int line = 0; line < LINES && (known == NULL || known->patterns != all->patterns); line++)
        prefetch((const char *)next + 64 * line);
    return known;
}

static int pack_all(output *out, packing *all, PyObject *values, Py_ssize_t total)
{
    uint32_t numbers[2] = {(uint32_t)PyList_GET_SIZE(values), (uint32_t)total};
    if (make_room(out, sizeof numbers) < 0) return -1;
    for (int n = 0; n < 2; n++)
        for (int shift = 0; shift < 32; shift += 8) out->bytes[out->used++] = (unsigned char)(numbers[n] >> shift);
    begin_column(all);
    entry *soon[AHEAD]; /* no entry moves while a column is packed */
    for (int row = 0; row < AHEAD; row++) soon[row] = prefetch_value(all, values, row);
    for (Py_ssize_t row = 0; row < PyList_GET_SIZE(values); row++) {
        entry *known = soon[row % AHEAD];
        if (row + FAR_AHEAD < PyList_GET_SIZE(values))
            prefetch_entry(&all->remembered, PyList_GET_ITEM(values, row + FAR_AHEAD));
        soon[row % AHEAD] = prefetch_value(all, values, row + AHEAD);
        if (put_value(out, all, PyList_GET_ITEM(values, row), known) < 0) return -1;
    }
    return 0;
}

PyDoc_STRVAR(pack_doc,
"pack(values, /) -> bytes or None\n\n"
"The byte strings, with what they share written once. None: nothing is gained, or they are too long together.");

static PyObject *pack(PyObject *self, PyObject *values)
{
    Py_ssize_t total = 0;
    int is_list = PyList_Check(values);
    for (Py_ssize_t row = 0; is_list && row < PyList_GET_SIZE(values) && total <= MOST_TOGETHER; row++) {
        PyObject *value = PyList_GET_ITEM(values, row);
        if (!PyBytes_CheckExact(value)) is_list = 0;
        else total += PyBytes_GET_SIZE(value);
    }
    if (!is_list) {
        PyErr_SetString(PyExc_TypeError, "pack(list of bytes)");
        return NULL;
    }
    if (total > MOST_TOGETHER || PyList_GET_SIZE(values) > MOST_TOGETHER) Py_RETURN_NONE;
    output *out = &((packing *)self)->out;
    PyObject *packed = NULL;
    out->used = 0;
    if (pack_all(out, (packing *)self, values, total) == 0)
        packed = out->used < (size_t)total ? PyBytes_FromStringAndSize((char *)out->bytes, (Py_ssize_t)out->used)
                                           : Py_NewRef(Py_None);
    if (out->room > MOST_ROOM) give_back(out);
    return packed;
}

static void packing_dealloc(PyObject *self)
{
    forget_families((packing *)self);
    clear_cache(&((packing *)self)->remembered);
    give_back(&((packing *)self)->out);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef packing_methods[] = {
    {"pack", pack, METH_O, pack_doc},
    {NULL, NULL, 0, NULL},
};

PyTypeObject packing_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "gateway.queue_manager.store._rows.Packing",
    .tp_doc = PyDoc_STR("Packing()\n\nPacks columns of similar byte strings; keeps its patterns from one to the next."),
    .tp_basicsize = sizeof(packing),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = packing_dealloc,
    .tp_methods = packing_methods,
};

/* -- unpacking: nothing in the input is trusted -- */

typedef struct {
    const unsigned char *at, *end;
} input;

/* -1: the input ends too early, or the number is longer than four bytes. */
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

/* `there`: bytes that may be read from `text` on. Most texts are too short to be worth a call of memcpy. */
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

static const char *get_member(input *in, const family *of, filled *out)
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
        return get_member(in, &of[kind - FIRST_FAMILY], out);
    }
    const unsigned char *begin = out->at;
    if ((problem = append_next(out, in)) != NULL) return problem;
    if (kind == REFERENCE) {
        if (*families == MOST_FAMILIES) return "packed values have too many references";
        Py_ssize_t length = out->at - begin; /* in the input, which is valid until all values are read */
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

const char unpack_heads_doc[] =
"unpack(packed, most, /) -> (bytes, bytes)\n\n"
"What was packed: where each of the byte strings begins and the last one ends, as offsets() has it, and all of them back\n"
"to back. ValueError if it was not, or is longer than `most`.";

static uint32_t little(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

Py_ssize_t packed_count(const Py_buffer *packed, Py_ssize_t most)
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

/* Every value is built in the same buffer, which so stays in the processor's cache. */
int each_packed(const Py_buffer *packed, int (*take)(void *context, const unsigned char *text, Py_ssize_t length),
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
    Py_ssize_t count = packed_count(packed, most);
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

PyObject *unpack_heads(PyObject *module, PyObject *const *args, Py_ssize_t count)
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
