/* MQINQ and MQSET of the in-memory queue manager. */
#include "memory.h"

typedef struct text_attribute {
    MQLONG selector;
    size_t length;
    const char *value;
} text_attribute;

static outcome queue_integer(const queue *q, MQLONG selector, MQLONG *out) {
    switch (selector) {
    case MQIA_CURRENT_Q_DEPTH: *out = q->depth; break;
    case MQIA_MAX_Q_DEPTH: *out = q->max_depth; break;
    case MQIA_MAX_MSG_LENGTH: *out = q->max_length; break;
    case MQIA_OPEN_INPUT_COUNT: *out = q->inputs; break;
    case MQIA_OPEN_OUTPUT_COUNT: *out = q->outputs; break;
    case MQIA_INHIBIT_GET: *out = q->inhibit_get; break;
    case MQIA_INHIBIT_PUT: *out = q->inhibit_put; break;
    case MQIA_BACKOUT_THRESHOLD: *out = q->backout_threshold; break;
    case MQIA_Q_TYPE: *out = MQQT_LOCAL; break;
    case MQIA_DEFINITION_TYPE: *out = q->definition_type; break;
    case MQIA_SHAREABILITY: *out = 1; break;
    case MQIA_DEF_INPUT_OPEN_OPTION: *out = MQOO_INPUT_SHARED; break;
    case MQIA_DEF_PERSISTENCE: case MQIA_DEF_PRIORITY: case MQIA_USAGE: case MQIA_MSG_DELIVERY_SEQUENCE:
    case MQIA_PROPERTY_CONTROL: case MQIA_TRIGGER_CONTROL: case MQIA_HARDEN_GET_BACKOUT: *out = 0; break;
    default: return failed(RC_SELECTOR);
    }
    return done;
}

static outcome qmgr_integer(MQLONG selector, MQLONG *out) {
    switch (selector) {
    case MQIA_CODED_CHAR_SET_ID: *out = 1208; break;
    case MQIA_COMMAND_LEVEL: *out = 940; break;
    case MQIA_PLATFORM: *out = MQPL_UNIX; break;
    case MQIA_MAX_MSG_LENGTH: *out = 104857600; break;
    case MQIA_MAX_PRIORITY: *out = PRIORITIES - 1; break;
    case MQIA_MAX_HANDLES: *out = 65536; break;
    case MQIA_MAX_UNCOMMITTED_MSGS: *out = 10000; break;
    case MQIA_SYNCPOINT: *out = 1; break;
    case MQIA_DIST_LISTS: *out = 0; break;
    default: return failed(RC_SELECTOR);
    }
    return done;
}

static bool find_text(const text_attribute *table, size_t count, MQLONG selector, text_attribute *out) {
    for (size_t i = 0; i < count; i++)
        if (table[i].selector == selector) {
            *out = table[i];
            return true;
        }
    return false;
}

static bool text_of(const object *o, MQLONG selector, text_attribute *out) {
    if (o->type == MQOT_Q_MGR) {
        const text_attribute table[] = {{MQCA_Q_MGR_NAME, 48, memory_qmgr}, {MQCA_Q_MGR_DESC, 64, ""}, {MQCA_Q_MGR_IDENTIFIER, 48, memory_qmgr},
                                        {MQCA_DEAD_LETTER_Q_NAME, 48, "SYSTEM.DEAD.LETTER.QUEUE"},
                                        {MQCA_COMMAND_INPUT_Q_NAME, 48, ""}, {MQCA_DEF_XMIT_Q_NAME, 48, ""}};
        return find_text(table, sizeof table / sizeof *table, selector, out);
    }
    const text_attribute table[] = {{MQCA_Q_NAME, 48, o->queue->name}, {MQCA_Q_DESC, 64, o->queue->description},
                                    {MQCA_BACKOUT_REQ_Q_NAME, 48, o->queue->backout_queue}, {MQCA_CREATION_DATE, 12, ""},
                                    {MQCA_CREATION_TIME, 8, ""}};
    return find_text(table, sizeof table / sizeof *table, selector, out);
}

static outcome inquire(const object *o, inquire_call *call) {
    outcome result = done;
    MQLONG ints = 0, chars = 0;
    for (MQLONG i = 0; i < call->selector_count; i++) {
        MQLONG selector = call->selectors[i], value;
        text_attribute text;
        if (selector >= MQIA_FIRST && selector <= MQIA_LAST) {
            outcome r = o->type == MQOT_Q ? queue_integer(o->queue, selector, &value) : qmgr_integer(selector, &value);
            if (is_failed(r)) return r;
            if (ints < call->int_count) call->ints[ints] = value;
            else result = warning(RC_INT_ATTRS_TOO_SMALL);
            ints++;
            continue;
        }
        if (!text_of(o, selector, &text)) return failed(RC_SELECTOR);
        if (chars + (MQLONG)text.length > call->char_length) return warning(RC_CHAR_ATTRS_TOO_SHORT);
        size_t length = text.value[0] ? strnlen(text.value, text.length) : 0;
        field_set(call->chars + chars, text.length, (view){(const unsigned char *)text.value, length});
        chars += (MQLONG)text.length;
    }
    return result;
}

outcome memory_inquire(connection *c, inquire_call *call) {
    object *o;
    pthread_mutex_lock(&memory_lock);
    outcome r = session_object(c, call->hobj, &o);
    if (!is_failed(r) && !(o->options & MQOO_INQUIRE)) r = failed(RC_NOT_OPEN_FOR_INQUIRE);
    if (!is_failed(r) && o->type != MQOT_Q && o->type != MQOT_Q_MGR) r = failed(RC_HOBJ);
    if (!is_failed(r)) r = inquire(o, call);
    pthread_mutex_unlock(&memory_lock);
    return r;
}

static outcome set(queue *q, const inquire_call *call) {
    for (MQLONG i = 0; i < call->selector_count; i++) {
        if (i >= call->int_count) return failed(RC_INT_ATTR_COUNT);
        switch (call->selectors[i]) {
        case MQIA_INHIBIT_GET: q->inhibit_get = call->ints[i]; break;
        case MQIA_INHIBIT_PUT: q->inhibit_put = call->ints[i]; break;
        case MQIA_TRIGGER_CONTROL: case MQIA_DIST_LISTS: break;
        default: return failed(RC_SELECTOR);
        }
    }
    if (q->waiters) pthread_cond_broadcast(&q->arrived);
    return done;
}

outcome memory_set(connection *c, inquire_call *call) {
    object *o;
    pthread_mutex_lock(&memory_lock);
    outcome r = session_object(c, call->hobj, &o);
    if (!is_failed(r) && o->type != MQOT_Q) r = failed(RC_HOBJ);
    if (!is_failed(r) && !(o->options & MQOO_SET)) r = failed(RC_NOT_OPEN_FOR_SET);
    if (!is_failed(r)) r = set(o->queue, call);
    pthread_mutex_unlock(&memory_lock);
    return r;
}
