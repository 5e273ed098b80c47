/* MQSETMP, MQINQMP, MQDLTMP: names are checked, values copied; each handle has a cursor for MQIMPO_INQ_NEXT. */
#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

#include "mqm.h"

bool handle_validates(MQHMSG handle);

/* ---- names ----------------------------------------------------------------------------------------------------------------- */

static bool is_sql_word(const char *word, size_t length) {
    static const char *const words[] = {"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == length && !strncasecmp(word, words[i], length)) return true;
    return false;
}

static bool is_name_byte(unsigned char c, bool first) {
    return c >= 0x80 || isalpha(c) || c == '_' || c == '$' || (!first && isdigit(c));
}

static bool begins_with(view name, const char *start) {
    return name.length >= strlen(start) && !strncasecmp((const char *)name.data, start, strlen(start));
}

/* Of the names that begin with JMS a program may set these. */
static bool is_of_jms(view name) {
    static const char *const free_to_set[] = {"JMSCorrelationID", "JMSReplyTo", "JMSType", "JMSXGroupID", "JMSXGroupSeq"};
    for (size_t i = 0; i < sizeof free_to_set / sizeof *free_to_set; i++)
        if (strlen(free_to_set[i]) == name.length && !memcmp(name.data, free_to_set[i], name.length)) return false;
    return name.length >= 3 && !memcmp(name.data, "JMS", 3);
}

/* `Root.` and `Body.` are the message's own; of these only fields of the descriptor are properties. */
static bool is_reserved(view name) {
    static const char descriptor[] = "Root.MQMD.";
    if (name.length >= sizeof descriptor && !memcmp(name.data, descriptor, sizeof descriptor - 1)) return false;
    return name.length >= 5 && (!memcmp(name.data, "Root.", 5) || !memcmp(name.data, "Body.", 5));
}

/* Each part between dots is an identifier; a name of a folder of the product has one dot, and so has one of usr. */
static bool is_valid_name(view name) {
    size_t start = 0, dots = 0;
    for (size_t i = 0; i <= name.length; i++) {
        if (i < name.length && name.data[i] != '.') {
            if (!is_name_byte(name.data[i], i == start)) return false;
            continue;
        }
        if (i == start) return false;
        dots += i < name.length;
        start = i + 1;
    }
    view bare = property_name(name);
    if (is_reserved(name) || (dots > 1 && bare.data != name.data)) return false;
    if (is_of_jms(bare) || (dots > 1 && begins_with(name, "mq") && !begins_with(name, "mq_usr"))) return false;
    return !is_sql_word((const char *)bare.data, bare.length);
}

/* By what other name the property may have come: that of its element in an MQRFH2 ("Property name restrictions", IBM MQ). */
static view synonym(view name) {
    static const struct {
        const char *name, *element;
    } synonyms[] = {
        {"JMSCorrelationID", "jms.Cid"}, {"JMSDeliveryMode", "jms.Dlv"}, {"JMSDestination", "jms.Dst"},
        {"JMSExpiration", "jms.Exp"},    {"JMSPriority", "jms.Pri"},     {"JMSReplyTo", "jms.Rto"},
        {"JMSTimestamp", "jms.Tms"},     {"JMSType", "mcd.Type"},        {"JMSXGroupID", "jms.Gid"},
        {"JMSXGroupSeq", "jms.Seq"},     {"MQIsRetained", "mqps.Ret"},   {"MQPubLevel", "mqps.Pbl"},
        {"MQPubOptions", "mqps.Pub"},    {"MQSubUserData", "mqps.Sud"},  {"MQTopicString", "mqps.Top"},
    };
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        if (strlen(synonyms[i].name) == name.length && !memcmp(synonyms[i].name, name.data, name.length))
            return (view){(const unsigned char *)synonyms[i].element, strlen(synonyms[i].element)};
    return name;
}

/* The name that a property of the list is kept under. */
static view kept_under(property_list *list, view name) {
    view other = synonym(name);
    bool known = other.data != name.data && properties_find(list, name) == list->count;
    return known && properties_find(list, other) < list->count ? other : name;
}

/* The name in UTF-8, in `room`. */
static outcome name_in(const MQCHARV *charv, buffer *room, view *name) {
    if (!charv) return failed(RC_PROPERTY_NAME);
    outcome o = charv_in(charv, charv, RC_PROPERTY_NAME, name);
    if (!is_failed(o)) o = text_recode(charv->VSCCSID, *name, MQCCSI_APPL, MQENC_NATIVE, room);
    if (is_failed(o)) return o;
    *name = buffer_view(room);
    while (name->length && name->data[name->length - 1] == ' ') name->length--;
    return !name->length || name->length > MQ_MAX_PROPERTY_NAME_LENGTH ? failed(RC_PROPERTY_NAME_LENGTH) : done;
}

/* Whether an element of a folder would have a value and elements of its own: `a.b` beside `a.b.c`. */
static bool would_be_mixed(const property_list *list, view name) {
    view wanted = property_name(name);
    if (!memchr(wanted.data, '.', wanted.length)) return false;
    for (size_t i = 0; i < list->count; i++) {
        const char *there = list->items[i].name, *given = (const char *)wanted.data;
        size_t length = strlen(there), shorter = length < wanted.length ? length : wanted.length;
        if (length == wanted.length || memcmp(there, given, shorter)) continue;
        if ((length < wanted.length ? given : there)[shorter] == '.' && memchr(given, '.', shorter)) return true;
    }
    return false;
}

/* ---- MQSETMP --------------------------------------------------------------------------------------------------------------- */

static outcome value_in(MQLONG type, MQLONG length, const void *data, view *value) {
    MQLONG fixed = type_length(type);
    if (fixed == -2) return failed(RC_PROPERTY_TYPE);
    if (fixed >= 0 && length != fixed && length != MQVL_NULL_TERMINATED) return failed(RC_BUFFER_LENGTH);
    if (fixed >= 0) length = fixed;  /* Python's clients say MQVL_NULL_TERMINATED of every type, unless told otherwise */
    else if (length == MQVL_NULL_TERMINATED && type == MQTYPE_STRING) length = data ? (MQLONG)strlen(data) : 0;
    if (length < 0) return failed(RC_BUFFER_LENGTH);
    if (length && !data) return failed(RC_BUFFER_ERROR);
    *value = (view){data, (size_t)length};
    return done;
}

/* The value as it is kept: text in UTF-8, numbers in the order of this machine. */
static outcome value_kept(const MQSMPO *smpo, MQLONG type, view value, buffer *room) {
    if (type == MQTYPE_STRING) return text_recode(smpo->ValueCCSID, value, MQCCSI_APPL, smpo->ValueEncoding, room);
    if (!buffer_add(room, value.data, value.length)) return failed(RC_STORAGE);
    value_swap(type, smpo->ValueEncoding, room->data, room->length);
    return done;
}

static outcome check_set(const MQSMPO *smpo, const MQPD *pd) {
    static const MQLONG places = MQSMPO_SET_PROP_UNDER_CURSOR | MQSMPO_SET_PROP_AFTER_CURSOR | MQSMPO_APPEND_PROPERTY |
                                 MQSMPO_SET_PROP_BEFORE_CURSOR;
    static const MQLONG copies = MQCOPY_ALL | MQCOPY_FORWARD | MQCOPY_PUBLISH | MQCOPY_REPLY | MQCOPY_REPORT;
    outcome o = check_structure(smpo, "SMPO", MQSMPO_CURRENT_VERSION, RC_SMPO);
    if (!is_failed(o)) o = check_structure(pd, "PD  ", MQPD_CURRENT_VERSION, RC_PD);
    if (is_failed(o)) return o;
    if (smpo->Options & ~places || smpo->Options & (smpo->Options - 1)) return failed(RC_OPTIONS);
    bool context = pd->Context == MQPD_NO_CONTEXT || pd->Context == MQPD_USER_CONTEXT;
    return pd->Options || !context || pd->CopyOptions & ~copies ? failed(RC_PD) : done;
}

static void rotate_into(property_list *list, size_t index) {
    property last = list->items[list->count - 1];
    memmove(&list->items[index + 1], &list->items[index], (list->count - 1 - index) * sizeof last);
    list->items[index] = last;
    properties_moved(list);
}

static outcome set(property_list *list, MQLONG options, const property *like, view name, view value) {
    static const MQLONG beside_cursor = MQSMPO_SET_PROP_AFTER_CURSOR | MQSMPO_SET_PROP_BEFORE_CURSOR;
    size_t index = list->count, cursor = list->cursor;
    if (options & (beside_cursor | MQSMPO_SET_PROP_UNDER_CURSOR)) {
        if (cursor == 0 || cursor > list->count) return failed(RC_PROPERTY_NOT_AVAILABLE);
        if (options & MQSMPO_SET_PROP_UNDER_CURSOR) index = cursor - 1;
    } else if (!(options & MQSMPO_APPEND_PROPERTY)) {
        index = properties_find(list, name);
    }
    outcome o = properties_put(list, index, like, name, value);
    if (!is_failed(o) && (options & beside_cursor))
        rotate_into(list, options & MQSMPO_SET_PROP_AFTER_CURSOR ? cursor : cursor - 1);
    return o;
}

EXPORT void MQSETMP(MQHCONN hconn, MQHMSG handle, PMQVOID options, PMQVOID name, PMQVOID descriptor, MQLONG type,
                    MQLONG length, PMQVOID data, PMQLONG cc, PMQLONG rc) {
    (void)hconn;
    const MQSMPO *smpo = options;
    const MQPD *pd = descriptor;
    property_list *list;
    view text, value;
    buffer name_room = {0}, value_room = {0};
    outcome o = check_set(smpo, pd);
    if (!is_failed(o)) o = name_in(name, &name_room, &text);
    if (!is_failed(o)) o = value_in(type, length, data, &value);
    if (!is_failed(o)) o = value_kept(smpo, type, value, &value_room);
    if (!is_failed(o)) o = handle_enter(handle, &list);
    if (!is_failed(o)) {
        property like = {.type = type, .support = pd->Support, .context = pd->Context, .copy = pd->CopyOptions};
        bool valid = !handle_validates(handle) || is_valid_name(text);
        if (!valid) o = failed(RC_PROPERTY_NAME);
        else if (would_be_mixed(list, text)) o = failed(RC_MIXED_CONTENT);
        else o = set(list, smpo->Options, &like, kept_under(list, text), buffer_view(&value_room));
        handle_leave();
    }
    buffer_free(&name_room);
    buffer_free(&value_room);
    report(o, cc, rc);
}

/* ---- finding: an exact name, `%`, or `folder.%` ------------------------------------------------------------------------------ */

static bool matches(const property *p, view pattern) {
    size_t length = strlen(p->name);
    if (pattern.length == 1 && pattern.data[0] == '%') return true;
    if (pattern.data[pattern.length - 1] != '%') {
        view wanted = property_name(pattern);
        return wanted.length == length && !memcmp(wanted.data, p->name, length);
    }
    size_t prefix = pattern.length - 1;
    if (prefix == 4 && !memcmp(pattern.data, "usr.", 4)) return !strchr(p->name, '.');
    return length > prefix && !memcmp(p->name, pattern.data, prefix);
}

static outcome find(property_list *list, view pattern, MQLONG options, size_t *found) {
    size_t start = options & MQIMPO_INQ_NEXT ? list->cursor : 0;
    if (options & MQIMPO_INQ_PROP_UNDER_CURSOR) {
        *found = list->cursor - 1;
        return list->cursor && list->cursor <= list->count ? done : failed(RC_PROPERTY_NOT_AVAILABLE);
    }
    pattern = kept_under(list, pattern);
    if (!start && pattern.data[pattern.length - 1] != '%') {
        *found = properties_find(list, pattern);
        return *found < list->count ? done : failed(RC_PROPERTY_NOT_AVAILABLE);
    }
    for (size_t i = start; i < list->count; i++)
        if (matches(&list->items[i], pattern)) {
            *found = i;
            return done;
        }
    return failed(RC_PROPERTY_NOT_AVAILABLE);
}

/* ---- MQINQMP --------------------------------------------------------------------------------------------------------------- */

static const char *type_string(MQLONG type) {
    switch (type) {
    case MQTYPE_BOOLEAN: return "boolean";
    case MQTYPE_BYTE_STRING: return "bin.hex";
    case MQTYPE_INT8: return "i1";
    case MQTYPE_INT16: return "i2";
    case MQTYPE_INT32: return "i4";
    case MQTYPE_INT64: return "i8";
    case MQTYPE_FLOAT32: return "r4";
    case MQTYPE_FLOAT64: return "r8";
    default: return "string";
    }
}

typedef struct inquiry {
    MQIMPO *impo;
    MQPD *pd;
    PMQLONG type, data_length;
    MQLONG size;
    void *room;
} inquiry;

/* MQIMPO_CONVERT_VALUE: text and numbers as they were asked for; 2466, and the value as it is, if that cannot be. */
static outcome value_asked(const inquiry *q, MQLONG type, buffer *value) {
    const MQIMPO *asked = q->impo;
    if (!(asked->Options & MQIMPO_CONVERT_VALUE)) return done;
    bool recoded = false;
    if (type == MQTYPE_STRING) {
        buffer text = {0};
        recoded = !is_failed(text_recode(MQCCSI_APPL, buffer_view(value), asked->RequestedCCSID, asked->RequestedEncoding, &text));
        if (recoded) {
            buffer_free(value);
            *value = text;
        } else {
            buffer_free(&text);
            return warning(RC_PROP_VALUE_NOT_CONVERTED);
        }
    }
    value_swap(type, asked->RequestedEncoding, value->data, value->length);
    q->impo->ReturnedEncoding = asked->RequestedEncoding;
    bool own = asked->RequestedCCSID == MQCCSI_APPL || asked->RequestedCCSID == MQCCSI_DEFAULT;
    if (recoded && !own) q->impo->ReturnedCCSID = asked->RequestedCCSID;
    return done;
}

static outcome value_out(const inquiry *q, const property *p, MQLONG type) {
    buffer value = {0};
    outcome o = value_convert(p, type, &value);
    if (!is_failed(o)) o = value_asked(q, type, &value);
    if (!is_failed(o)) {
        *q->type = type;
        *q->data_length = (MQLONG)value.length;
        bool fits = value.length <= (size_t)q->size;
        if (q->impo->Options & MQIMPO_QUERY_LENGTH) fits = true;
        else if (!fits && type != MQTYPE_STRING && type != MQTYPE_BYTE_STRING) o = failed(RC_PROPERTY_VALUE_TOO_BIG);
        else if (value.length) memcpy(q->room, value.data, fits ? value.length : (size_t)q->size);
        if (!fits) o = failed(RC_PROPERTY_VALUE_TOO_BIG);
    }
    buffer_free(&value);
    return o;
}

static outcome descriptor_out(const inquiry *q, const property *p) {
    q->pd->Support = p->support;
    q->pd->Context = p->context;
    q->pd->CopyOptions = p->copy;
    q->impo->ReturnedEncoding = MQENC_NATIVE;
    q->impo->ReturnedCCSID = 1208;
    field_set(q->impo->TypeString, sizeof q->impo->TypeString,
              (view){(const unsigned char *)type_string(p->type), strlen(type_string(p->type))});
    view name = {(const unsigned char *)p->name, strlen(p->name)};
    outcome o = charv_out(&q->impo->ReturnedName, q->impo, name, RC_IMPO, RC_PROPERTY_NAME_TOO_BIG);
    q->impo->ReturnedName.VSCCSID = 1208;
    return o;
}

static outcome inquire(property_list *list, view pattern, const inquiry *q) {
    size_t index;
    outcome o = find(list, pattern, q->impo->Options, &index);
    if (is_failed(o)) return o;
    const property *p = &list->items[index];
    MQLONG type = *q->type == MQTYPE_AS_SET ? p->type : *q->type;
    if (type != p->type && !(q->impo->Options & MQIMPO_CONVERT_TYPE)) return failed(RC_PROP_CONV_NOT_SUPPORTED);
    outcome named = descriptor_out(q, p);
    o = value_out(q, p, type);
    if (!is_failed(o) && !(q->impo->Options & MQIMPO_QUERY_LENGTH)) list->cursor = index + 1;
    return is_failed(o) ? o : named.rc ? failed(named.rc) : o;
}

static outcome check_inquiry(MQLONG options) {
    static const MQLONG known = MQIMPO_CONVERT_TYPE | MQIMPO_QUERY_LENGTH | MQIMPO_INQ_NEXT | MQIMPO_INQ_PROP_UNDER_CURSOR |
                                MQIMPO_CONVERT_VALUE;
    bool both = options & MQIMPO_INQ_NEXT && options & MQIMPO_INQ_PROP_UNDER_CURSOR;
    return options & ~known || both ? failed(RC_OPTIONS) : done;
}

EXPORT void MQINQMP(MQHCONN hconn, MQHMSG handle, PMQVOID options, PMQVOID name, PMQVOID descriptor, PMQLONG type,
                    MQLONG size, PMQVOID room, PMQLONG data_length, PMQLONG cc, PMQLONG rc) {
    (void)hconn;
    inquiry q = {options, descriptor, type, data_length, size, room};
    property_list *list;
    view pattern;
    buffer name_room = {0};
    if (data_length) *data_length = 0;
    outcome o = check_structure(options, "IMPO", MQIMPO_CURRENT_VERSION, RC_IMPO);
    if (!is_failed(o)) o = check_inquiry(q.impo->Options);
    if (!is_failed(o)) o = check_structure(descriptor, "PD  ", MQPD_CURRENT_VERSION, RC_PD);
    if (!is_failed(o) && (!type || type_length(*type) == -2) && !(type && *type == MQTYPE_AS_SET)) o = failed(RC_PROPERTY_TYPE);
    if (!is_failed(o) && (size < 0 || !data_length)) o = failed(data_length ? RC_BUFFER_LENGTH : RC_DATA_LENGTH);
    if (!is_failed(o) && size && !room) o = failed(RC_BUFFER_ERROR);
    if (!is_failed(o)) o = name_in(name, &name_room, &pattern);
    if (!is_failed(o)) o = handle_enter(handle, &list);
    if (!is_failed(o)) {
        o = inquire(list, pattern, &q);
        handle_leave();
    }
    buffer_free(&name_room);
    report(o, cc, rc);
}

/* ---- MQDLTMP --------------------------------------------------------------------------------------------------------------- */

EXPORT void MQDLTMP(MQHCONN hconn, MQHMSG handle, PMQVOID options, PMQVOID name, PMQLONG cc, PMQLONG rc) {
    (void)hconn;
    const MQDMPO *dmpo = options;
    property_list *list;
    view pattern;
    size_t index;
    buffer name_room = {0};
    outcome o = check_structure(dmpo, "DMPO", MQDMPO_CURRENT_VERSION, RC_DMPO);
    if (!is_failed(o) && dmpo->Options & ~MQDMPO_DEL_PROP_UNDER_CURSOR) o = failed(RC_OPTIONS);
    if (!is_failed(o)) o = name_in(name, &name_room, &pattern);
    if (!is_failed(o)) o = handle_enter(handle, &list);
    if (!is_failed(o)) {
        bool at_cursor = dmpo->Options & MQDMPO_DEL_PROP_UNDER_CURSOR;
        o = find(list, pattern, at_cursor ? MQIMPO_INQ_PROP_UNDER_CURSOR : 0, &index);
        if (!is_failed(o)) properties_remove(list, index);
        else o = warning(o.rc);
        handle_leave();
    }
    buffer_free(&name_room);
    report(o, cc, rc);
}
