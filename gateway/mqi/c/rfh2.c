/* Properties as folders of an MQRFH2 and back (mqi-library reference, section on properties). A folder is one line of simple XML:
   elements with text, an optional dt attribute, no mixed content. Anything else is refused. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#include "mqm.h"

/* ---- writing --------------------------------------------------------------------------------------------------------------- */

static bool add_escaped(buffer *out, view text) {
    bool fits = true;
    for (size_t i = 0; fits && i < text.length; i++) {
        switch (text.data[i]) {
        case '<': fits = buffer_text(out, "&lt;"); break;
        case '>': fits = buffer_text(out, "&gt;"); break;
        case '&': fits = buffer_text(out, "&amp;"); break;
        case '"': fits = buffer_text(out, "&quot;"); break;
        case '\'': fits = buffer_text(out, "&apos;"); break;
        default: fits = buffer_add(out, &text.data[i], 1);
        }
    }
    return fits;
}

static const char *dt_of(MQLONG type) {
    switch (type) {
    case MQTYPE_BOOLEAN: return " dt='boolean'";
    case MQTYPE_BYTE_STRING: return " dt='bin.hex'";
    case MQTYPE_INT8: return " dt='i1'";
    case MQTYPE_INT16: return " dt='i2'";
    case MQTYPE_INT32: return " dt='i4'";
    case MQTYPE_INT64: return " dt='i8'";
    case MQTYPE_FLOAT32: return " dt='r4'";
    case MQTYPE_FLOAT64: return " dt='r8'";
    case MQTYPE_NULL: return " xsi:nil='true'";
    default: return "";
    }
}

static bool add_value(buffer *out, const property *p) {
    if (p->type == MQTYPE_NULL) return true;
    if (p->type == MQTYPE_BOOLEAN) return buffer_text(out, p->value[0] ? "1" : "0");
    buffer text = {0};
    bool fits = !is_failed(value_convert(p, MQTYPE_STRING, &text)) && add_escaped(out, buffer_view(&text));
    buffer_free(&text);
    return fits;
}

/* `a.b.c` below a folder becomes <a><b><c dt=..>value</c></b></a>. */
static bool add_elements(buffer *out, const char *path, const property *p) {
    size_t length = strcspn(path, ".");
    bool leaf = !path[length];
    bool fits = buffer_text(out, "<") && buffer_add(out, path, length) && buffer_text(out, leaf ? dt_of(p->type) : "") &&
                buffer_text(out, ">");
    fits = fits && (leaf ? add_value(out, p) : add_elements(out, path + length + 1, p));
    return fits && buffer_text(out, "</") && buffer_add(out, path, length) && buffer_text(out, ">");
}

static view folder_of(const property *p) {
    const char *dot = strchr(p->name, '.');
    if (!dot) return (view){(const unsigned char *)"usr", 3};
    return (view){(const unsigned char *)p->name, (size_t)(dot - p->name)};
}

static bool same(view a, view b) { return a.length == b.length && !memcmp(a.data, b.data, a.length); }

static bool is_known_folder(view f) {
    static const char *const known[] = {"mcd", "jms", "usr", "mqext", "mqps", "mq", "mq_usr", "mqtt", "sib", "sib_usr"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == f.length && !memcmp(known[i], f.data, f.length)) return true;
    return false;
}

static bool add_folder(buffer *out, const property_list *list, size_t first) {
    view folder = folder_of(&list->items[first]);
    size_t start = out->length;
    bool fits = buffer_i4(out, 0) && buffer_text(out, "<") && buffer_add(out, folder.data, folder.length) &&
                buffer_text(out, is_known_folder(folder) ? ">" : " content='properties'>");
    for (size_t i = first; fits && i < list->count; i++) {
        const property *p = &list->items[i];
        const char *path = strchr(p->name, '.') ? p->name + folder.length + 1 : p->name;
        if (same(folder_of(p), folder)) fits = add_elements(out, path, p);
    }
    fits = fits && buffer_text(out, "</") && buffer_add(out, folder.data, folder.length) && buffer_text(out, ">");
    while (fits && (out->length - start) % 4) fits = buffer_text(out, " ");
    if (!fits) return false;
    MQLONG length = (MQLONG)(out->length - start - 4);
    memcpy(out->data + start, &length, 4);
    return true;
}

outcome rfh2_build(const property_list *list, const MQMD *follows, buffer *out) {
    MQRFH2 header = {MQRFH2_DEFAULT};
    header.Encoding = follows->Encoding;
    header.CodedCharSetId = follows->CodedCharSetId;
    field_copy(header.Format, follows->Format, sizeof header.Format);
    bool fits = buffer_add(out, &header, sizeof header);
    for (size_t i = 0; fits && i < list->count; i++) {
        size_t earlier = 0;
        while (earlier < i && !same(folder_of(&list->items[earlier]), folder_of(&list->items[i]))) earlier++;
        if (earlier == i) fits = add_folder(out, list, i);
    }
    if (!fits) return failed(RC_STORAGE);
    MQLONG length = (MQLONG)out->length;
    memcpy(out->data + offsetof(MQRFH2, StrucLength), &length, sizeof length);
    return done;
}

/* ---- reading --------------------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *at, *end;
    property_list *list;
    char path[MQ_MAX_PROPERTY_NAME_LENGTH + 1];
    size_t path_length;
    int depth;
} reader;

enum { DEEPEST = 32 };

static bool accept(reader *r, const char *text) {
    size_t length = strlen(text);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, text, length)) return false;
    r->at += length;
    return true;
}

static void skip_blanks(reader *r) {
    while (r->at < r->end && isspace((unsigned char)*r->at)) r->at++;
}

static bool is_name(char c) { return (c & 0x80) || isalnum((unsigned char)c) || strchr("_-.:$", c); }

static view read_name(reader *r) {
    const char *start = r->at;
    while (r->at < r->end && *r->at && is_name(*r->at)) r->at++;
    return (view){(const unsigned char *)start, (size_t)(r->at - start)};
}

/* Reads the attributes of an opening tag (dt and xsi:nil) up to and including its `>`; sets `*empty` for `/>`. */
static bool read_attributes(reader *r, view *dt, bool *nil, bool *empty) {
    for (;;) {
        skip_blanks(r);
        *empty = accept(r, "/>");
        if (*empty || accept(r, ">")) return true;
        view name = read_name(r);
        if (!name.length || !accept(r, "=") || r->at >= r->end || !strchr("'\"", *r->at)) return false;
        const char *close = memchr(r->at + 1, *r->at, (size_t)(r->end - r->at - 1));
        if (!close) return false;
        view value = {(const unsigned char *)r->at + 1, (size_t)(close - r->at - 1)};
        if (same(name, (view){(const unsigned char *)"dt", 2})) *dt = value;
        if (same(name, (view){(const unsigned char *)"xsi:nil", 7})) *nil = value.length && (value.data[0] == 't' || value.data[0] == '1');
        r->at = close + 1;
    }
}

static bool unescape(view text, buffer *out) {
    static const struct { const char *name; char is; } entities[] = {
        {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}};
    bool fits = buffer_add(out, "", 0);
    for (size_t i = 0; fits && i < text.length; i++) {
        char c = (char)text.data[i];
        for (size_t k = 0; c == '&' && k < 5; k++) {
            size_t length = strlen(entities[k].name);
            if (text.length - i < length || memcmp(text.data + i, entities[k].name, length)) continue;
            c = entities[k].is;
            i += length - 1;
            break;
        }
        fits = buffer_add(out, &c, 1);
    }
    return fits;
}

static MQLONG type_of(view dt) {
    static const struct { const char *name; MQLONG type; } types[] = {
        {"string", MQTYPE_STRING}, {"boolean", MQTYPE_BOOLEAN}, {"bin.hex", MQTYPE_BYTE_STRING}, {"i1", MQTYPE_INT8},
        {"i2", MQTYPE_INT16}, {"i4", MQTYPE_INT32}, {"i8", MQTYPE_INT64}, {"int", MQTYPE_INT64}, {"r4", MQTYPE_FLOAT32},
        {"r8", MQTYPE_FLOAT64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == dt.length && !memcmp(types[i].name, dt.data, dt.length)) return types[i].type;
    return MQTYPE_STRING;
}

static bool hex_value(const char *text, buffer *out) {
    for (; text[0] && text[1]; text += 2) {
        unsigned byte;
        char pair[3] = {text[0], text[1], 0}, *end;
        byte = (unsigned)strtoul(pair, &end, 16);
        if (*end || !buffer_add(out, &(unsigned char){(unsigned char)byte}, 1)) return false;
    }
    return !*text;
}

static outcome add_property(reader *r, MQLONG type, view text) {
    buffer plain = {0}, value = {0};
    outcome o = unescape(text, &plain) && buffer_reserve(&value, 1) ? done : failed(RC_STORAGE);
    property as_text = {.type = MQTYPE_STRING, .value = plain.data, .length = (MQLONG)plain.length};
    if (!is_failed(o) && type == MQTYPE_BYTE_STRING) o = hex_value((const char *)plain.data, &value) ? done : failed(RC_RFH);
    else if (!is_failed(o) && type != MQTYPE_NULL) o = value_convert(&as_text, type, &value);
    property like = {.type = type, .support = MQPD_SUPPORT_OPTIONAL, .copy = MQCOPY_DEFAULT};
    view name = {(const unsigned char *)r->path, r->path_length};
    if (!is_failed(o)) o = properties_set(r->list, &like, name, buffer_view(&value));
    buffer_free(&plain);
    buffer_free(&value);
    return is_failed(o) && o.rc != RC_STORAGE ? failed(RC_RFH) : o;
}

static outcome read_element(reader *r, bool folder);

static outcome read_content(reader *r, MQLONG type, bool folder) {
    const char *start = r->at;
    const char *tag = memchr(start, '<', (size_t)(r->end - start));
    if (!tag) return failed(RC_RFH);
    if (!folder && tag + 1 < r->end && tag[1] == '/') {
        r->at = tag;
        return add_property(r, type, (view){(const unsigned char *)start, (size_t)(tag - start)});
    }
    for (outcome o = done;;) {
        skip_blanks(r);
        if (r->end - r->at >= 2 && r->at[0] == '<' && r->at[1] == '/') return o;
        o = read_element(r, false);
        if (is_failed(o)) return o;
    }
}

static bool path_push(reader *r, view name) {
    if (r->path_length + name.length + 1 > MQ_MAX_PROPERTY_NAME_LENGTH) return false;
    if (r->path_length) r->path[r->path_length++] = '.';
    memcpy(r->path + r->path_length, name.data, name.length);
    r->path_length += name.length;
    return true;
}

static outcome read_element(reader *r, bool folder) {
    view dt = {0};
    bool nil = false, empty = false;
    size_t before = r->path_length;
    if (++r->depth > DEEPEST || !accept(r, "<")) return failed(RC_RFH);
    view name = read_name(r);
    if (!name.length || !path_push(r, name) || !read_attributes(r, &dt, &nil, &empty)) return failed(RC_RFH);
    MQLONG type = nil ? MQTYPE_NULL : type_of(dt);
    outcome o = done;
    if (!empty) {
        o = read_content(r, type, folder);
        if (!is_failed(o) && !(accept(r, "</") && same(read_name(r), name) && (skip_blanks(r), accept(r, ">")))) o = failed(RC_RFH);
    } else if (!folder) {
        o = add_property(r, type, (view){0});
    }
    r->path_length = before;
    r->depth--;
    return o;
}

static MQLONG number(const unsigned char *at, bool big) {
    uint32_t value;
    memcpy(&value, at, 4);
    return (MQLONG)(big ? __builtin_bswap32(value) : value);
}

/* Whether a folder holds properties: a known one, or one that says so. */
static bool holds_properties(view folder) {
    const char *text = (const char *)folder.data, *end = memchr(text, '>', folder.length);
    if (!end || *text != '<') return true;  /* read as one, and refused */
    view tag = {folder.data + 1, (size_t)(end - text) - 1}, name = tag;
    name.length = 0;
    while (name.length < tag.length && is_name((char)tag.data[name.length])) name.length++;
    return is_known_folder(name) || memmem(tag.data, tag.length, "content='properties'", 20) ||
           memmem(tag.data, tag.length, "content=\"properties\"", 20);
}

static outcome read_folder(view text, MQLONG ccsid, MQLONG encoding, property_list *list, bool *is_property) {
    buffer utf_8 = {0};
    outcome o = text_recode(ccsid, text, MQCCSI_APPL, encoding, &utf_8);
    if (!is_failed(o)) {
        const char *start = (const char *)utf_8.data;
        reader r = {.at = start, .end = start + field_length(start, utf_8.length), .list = list};
        *is_property = r.at == r.end || holds_properties((view){utf_8.data, (size_t)(r.end - r.at)});
        if (*is_property && r.at != r.end) o = read_element(&r, true);
    }
    buffer_free(&utf_8);
    return is_failed(o) && o.rc != RC_STORAGE ? failed(RC_RFH) : o;
}

/* The properties of an MQRFH2 at the start of `data`; `follows` then describes the data after the header. `kept` is an MQRFH2 with the
   folders that hold none; empty if there are no such. */
outcome rfh2_parse(view data, MQLONG encoding, property_list *list, size_t *header_length, MQMD *follows, buffer *kept) {
    bool big = (encoding & MQENC_INTEGER_MASK) == MQENC_INTEGER_NORMAL;
    if (data.length < sizeof(MQRFH2) || memcmp(data.data, "RFH ", 4) || number(data.data + 4, big) != 2) return failed(RC_RFH);
    MQLONG length = number(data.data + 8, big);
    if (length < (MQLONG)sizeof(MQRFH2) || (size_t)length > data.length) return failed(RC_RFH);
    for (size_t at = sizeof(MQRFH2); at < (size_t)length;) {
        if ((size_t)length - at < 4) return failed(RC_RFH);
        MQLONG size = number(data.data + at, big);
        if (size < 0 || (size_t)size > (size_t)length - at - 4) return failed(RC_RFH);
        bool is_property = true;
        view text = {data.data + at + 4, (size_t)size};
        outcome o = read_folder(text, number(data.data + 32, big), encoding, list, &is_property);
        if (is_failed(o)) return o;
        if (!is_property && !kept->length && !buffer_add(kept, data.data, sizeof(MQRFH2))) return failed(RC_STORAGE);
        if (!is_property && !buffer_add(kept, data.data + at, 4 + (size_t)size)) return failed(RC_STORAGE);
        at += 4 + (size_t)size;
    }
    if (kept->length) {
        MQLONG left = number((const unsigned char *)&(MQLONG){(MQLONG)kept->length}, big);
        memcpy(kept->data + offsetof(MQRFH2, StrucLength), &left, sizeof left);
    }
    follows->Encoding = number(data.data + 12, big);
    follows->CodedCharSetId = number(data.data + 16, big);
    memcpy(follows->Format, data.data + 20, sizeof follows->Format);
    *header_length = (size_t)length;
    return done;
}
