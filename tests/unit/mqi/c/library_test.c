/* Tests of the MQI library at its C interface, over the socket of an embedded queue manager. Run under AddressSanitizer and
   UndefinedBehaviorSanitizer. Each test is named on the command line; without a name all run. Ends with 0 when all hold. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmqc.h"
#include "cmqxc.h"
#include "cmqbc.h"

static int failures;
static const char *running;

static MQLONG cc, rc;

static void check(bool holds, int line, const char *condition) {
    if (holds) return;
    fprintf(stderr, "%s: line %d: %s (cc %d rc %d)\n", running, line, condition, cc, rc);
    failures++;
}

#define CHECK(condition) check(condition, __LINE__, #condition)
#define EXPECT(reason) check(rc == (reason), __LINE__, "reason " #reason)

static MQHCONN connect_with(MQLONG options) {
    MQCNO cno = {MQCNO_DEFAULT};
    MQHCONN hconn;
    cno.Options = options;
    MQCONNX("QM1", &cno, &hconn, &cc, &rc);
    return hconn;
}

static MQHCONN connected(void) { return connect_with(MQCNO_HANDLE_SHARE_BLOCK); }

static MQHOBJ opened(MQHCONN hconn, const char *name, MQLONG options) {
    MQOD od = {MQOD_DEFAULT};
    MQHOBJ hobj;
    strncpy(od.ObjectName, name, sizeof od.ObjectName);
    MQOPEN(hconn, &od, options, &hobj, &cc, &rc);
    return hobj;
}

enum { ALL = MQOO_INPUT_SHARED | MQOO_OUTPUT | MQOO_BROWSE | MQOO_INQUIRE | MQOO_SET };

static void put(MQHCONN hconn, MQHOBJ hobj, const char *text, MQLONG options) {
    MQMD md = {MQMD_DEFAULT};
    MQPMO pmo = {MQPMO_DEFAULT};
    pmo.Options = options;
    MQPUT(hconn, hobj, &md, &pmo, (MQLONG)strlen(text), (void *)text, &cc, &rc);
}

static MQLONG get(MQHCONN hconn, MQHOBJ hobj, char *room, MQLONG size, MQLONG options) {
    MQMD md = {MQMD_DEFAULT};
    MQGMO gmo = {MQGMO_DEFAULT};
    MQLONG length = -1;
    gmo.Options = options;
    if (size) memset(room, 0, (size_t)size);
    MQGET(hconn, hobj, &md, &gmo, size, room, &length, &cc, &rc);
    return length;
}

/* ---- structures ------------------------------------------------------------------------------------------------------------ */

static void wrong_structures(void) {
    MQHCONN hconn = connected();
    MQHOBJ hobj = opened(hconn, "STRUCTURES", ALL), other;
    MQOD od = {MQOD_DEFAULT};
    MQMD md = {MQMD_DEFAULT};
    MQPMO pmo = {MQPMO_DEFAULT};
    MQGMO gmo = {MQGMO_DEFAULT};
    MQCNO cno = {MQCNO_DEFAULT};
    MQLONG length;
    char room[8];
    MQHCONN none;
    od.Version = 5;
    MQOPEN(hconn, &od, MQOO_OUTPUT, &other, &cc, &rc), EXPECT(2044);
    memcpy(od.StrucId, "XX  ", 4), od.Version = 1;
    MQOPEN(hconn, &od, MQOO_OUTPUT, &other, &cc, &rc), EXPECT(2044);
    CHECK(other == MQHO_UNUSABLE_HOBJ);
    MQOPEN(hconn, NULL, MQOO_OUTPUT, &other, &cc, &rc), EXPECT(2044);
    md.Version = 3;
    MQPUT(hconn, hobj, &md, &pmo, 0, NULL, &cc, &rc), EXPECT(2026);
    md.Version = 1, pmo.Version = 4;
    MQPUT(hconn, hobj, &md, &pmo, 0, NULL, &cc, &rc), EXPECT(2173);
    pmo.Version = 1;
    MQPUT(hconn, hobj, &md, &pmo, -1, NULL, &cc, &rc), EXPECT(2005);
    MQPUT(hconn, hobj, &md, &pmo, 1, NULL, &cc, &rc), EXPECT(2004);
    gmo.Version = 0;
    MQGET(hconn, hobj, &md, &gmo, 8, room, &length, &cc, &rc), EXPECT(2186);
    cno.Version = 9;
    MQCONNX("QM1", &cno, &none, &cc, &rc), EXPECT(2139);
    CHECK(none == MQHC_UNUSABLE_HCONN);
    cno.Version = 1, cno.Options = MQCNO_HANDLE_SHARE_BLOCK | MQCNO_HANDLE_SHARE_NO_BLOCK;
    MQCONNX("QM1", &cno, &none, &cc, &rc), EXPECT(2046);
    MQCONN("OTHER", &none, &cc, &rc), EXPECT(2058);
    MQPUT(4711, hobj, &md, &pmo, 0, NULL, &cc, &rc), EXPECT(2018);
    MQPUT(hconn, 99, &md, &pmo, 0, NULL, &cc, &rc), EXPECT(2019);
    MQDISC(&hconn, &cc, &rc), EXPECT(0);
    CHECK(hconn == MQHC_UNUSABLE_HCONN);
}

/* As much memory as an earlier version of a structure takes; compilers know how long today's is. */
static void *of_length(volatile size_t length) { return malloc(length); }

/* A structure of a low version lies in exactly its length of memory: whatever is read or written beyond is found out. */
static void low_versions_stay_within_their_length(void) {
    MQCNO whole = {MQCNO_DEFAULT};
    MQCNO *cno = of_length(MQCNO_LENGTH_1);
    memcpy(cno, &whole, MQCNO_LENGTH_1);
    cno->Options = MQCNO_HANDLE_SHARE_BLOCK;
    MQHCONN hconn;
    MQCONNX("QM1", cno, &hconn, &cc, &rc), EXPECT(0);
    MQOD od_default = {MQOD_DEFAULT}, *od = of_length(MQOD_LENGTH_1);
    memcpy(od, &od_default, MQOD_LENGTH_1);
    strcpy(od->ObjectName, "LOW.VERSIONS");
    MQHOBJ hobj;
    MQOPEN(hconn, od, ALL, &hobj, &cc, &rc), EXPECT(0);
    MQMD md_default = {MQMD_DEFAULT}, *md = of_length(MQMD_LENGTH_1);
    MQPMO pmo_default = {MQPMO_DEFAULT}, *pmo = of_length(MQPMO_LENGTH_1);
    MQGMO gmo_default = {MQGMO_DEFAULT}, *gmo = of_length(MQGMO_LENGTH_1);
    memcpy(md, &md_default, MQMD_LENGTH_1);
    memcpy(pmo, &pmo_default, MQPMO_LENGTH_1);
    memcpy(gmo, &gmo_default, MQGMO_LENGTH_1);
    MQPUT(hconn, hobj, md, pmo, 2, "hi", &cc, &rc), EXPECT(0);
    CHECK(md->Version == 1);
    CHECK(!memcmp(md->MsgId, "AMQ QM1 ", 8));
    CHECK(!memcmp(md->Format, "        ", 8));
    CHECK(!memcmp(pmo->ResolvedQName, "LOW.VERSIONS    ", 16));
    MQPUT1(hconn, od, md, pmo, 2, "ho", &cc, &rc), EXPECT(0);
    MQLONG length;
    char room[4];
    memcpy(md, &md_default, MQMD_LENGTH_1);
    MQGET(hconn, hobj, md, gmo, sizeof room, room, &length, &cc, &rc), EXPECT(0);
    CHECK(length == 2 && !memcmp(room, "hi", 2));
    MQDISC(&hconn, &cc, &rc);
    free(cno), free(od), free(md), free(pmo), free(gmo);
}

static void security_by_offset(void) {
    struct {
        MQCNO cno;
        MQCSP csp;
        char user[4], password[4];
    } all = {.cno = {MQCNO_DEFAULT}, .csp = {MQCSP_DEFAULT}, .user = "app", .password = "pw"};
    MQHCONN hconn;
    all.cno.Version = 5;
    all.cno.Options = MQCNO_HANDLE_SHARE_BLOCK;
    all.cno.SecurityParmsOffset = (MQLONG)((char *)&all.csp - (char *)&all.cno);
    all.csp.AuthenticationType = MQCSP_AUTH_USER_ID_AND_PWD;
    all.csp.CSPUserIdOffset = (MQLONG)(all.user - (char *)&all.csp);
    all.csp.CSPUserIdLength = 3;
    all.csp.CSPPasswordOffset = (MQLONG)(all.password - (char *)&all.csp);
    all.csp.CSPPasswordLength = 2;
    MQCONNX("QM1", &all.cno, &hconn, &cc, &rc), EXPECT(0);
    MQHOBJ hobj = opened(hconn, "BY.OFFSET", ALL);
    MQMD md = {MQMD_DEFAULT};
    MQPMO pmo = {MQPMO_DEFAULT};
    MQPUT(hconn, hobj, &md, &pmo, 0, NULL, &cc, &rc), EXPECT(0);
    CHECK(!memcmp(md.UserIdentifier, "app         ", 12));
    MQDISC(&hconn, &cc, &rc);
    memcpy(all.csp.StrucId, "BAD ", 4);
    MQCONNX("QM1", &all.cno, &hconn, &cc, &rc), EXPECT(2595);
}

/* ---- messages -------------------------------------------------------------------------------------------------------------- */

static void truncation(void) {
    MQHCONN hconn = connected();
    MQHOBJ hobj = opened(hconn, "TRUNCATION", ALL);
    char room[16];
    put(hconn, hobj, "0123456789", 0);
    CHECK(get(hconn, hobj, room, 4, 0) == 10), EXPECT(2080);
    CHECK(cc == MQCC_WARNING && !memcmp(room, "0123", 4));
    CHECK(get(hconn, hobj, room, 4, MQGMO_BROWSE_FIRST) == 10), EXPECT(2080);
    CHECK(get(hconn, hobj, room, 4, MQGMO_ACCEPT_TRUNCATED_MSG) == 10), EXPECT(2079);
    get(hconn, hobj, room, 4, 0), EXPECT(2033);
    put(hconn, hobj, "x", 0);
    CHECK(get(hconn, hobj, NULL, 0, MQGMO_ACCEPT_TRUNCATED_MSG) == 1), EXPECT(2079);
    MQDISC(&hconn, &cc, &rc);
}

static void priorities_and_backout(void) {
    MQHCONN hconn = connected();
    MQHOBJ hobj = opened(hconn, "ORDER", ALL);
    MQPMO pmo = {MQPMO_DEFAULT};
    char room[8];
    for (int i = 0; i < 6; i++) {
        MQMD md = {MQMD_DEFAULT};
        char text = (char)('0' + i);
        md.Priority = i % 2 ? 7 : 3;
        MQPUT(hconn, hobj, &md, &pmo, 1, &text, &cc, &rc), EXPECT(0);
    }
    char order[7] = "";
    for (int i = 0; i < 6; i++) get(hconn, hobj, room, 8, MQGMO_SYNCPOINT), order[i] = room[0];
    CHECK(!strcmp(order, "135024"));
    get(hconn, hobj, room, 8, 0), EXPECT(2033);
    MQBACK(hconn, &cc, &rc), EXPECT(0);
    for (int i = 0; i < 6; i++) {
        MQMD md = {MQMD_DEFAULT};
        MQGMO gmo = {MQGMO_DEFAULT};
        MQLONG length;
        MQGET(hconn, hobj, &md, &gmo, 8, room, &length, &cc, &rc), EXPECT(0);
        CHECK(room[0] == order[i] && md.BackoutCount == 1);
    }
    MQDISC(&hconn, &cc, &rc);
}

static void browse_survives_what_is_taken(void) {
    MQHCONN hconn = connected();
    MQHOBJ looking = opened(hconn, "BROWSE", ALL), taking = opened(hconn, "BROWSE", ALL);
    char room[8];
    for (int i = 0; i < 5; i++) put(hconn, looking, (char[]){(char)('0' + i), 0}, 0);
    get(hconn, looking, room, 8, MQGMO_BROWSE_FIRST), CHECK(room[0] == '0');
    get(hconn, looking, room, 8, MQGMO_BROWSE_NEXT), CHECK(room[0] == '1');
    for (int i = 0; i < 3; i++) get(hconn, taking, room, 8, 0);
    get(hconn, looking, room, 8, MQGMO_MSG_UNDER_CURSOR), EXPECT(2034);
    get(hconn, looking, room, 8, MQGMO_BROWSE_NEXT), CHECK(room[0] == '3');
    get(hconn, looking, room, 8, MQGMO_MSG_UNDER_CURSOR), CHECK(room[0] == '3');
    get(hconn, looking, room, 8, MQGMO_BROWSE_NEXT), CHECK(room[0] == '4');
    get(hconn, looking, room, 8, MQGMO_BROWSE_NEXT), EXPECT(2033);
    get(hconn, looking, room, 8, MQGMO_BROWSE_FIRST | MQGMO_BROWSE_NEXT), EXPECT(2046);
    MQDISC(&hconn, &cc, &rc);
}

static void expiry(void) {
    MQHCONN hconn = connected();
    MQHOBJ hobj = opened(hconn, "EXPIRY", ALL);
    MQMD md = {MQMD_DEFAULT};
    MQPMO pmo = {MQPMO_DEFAULT};
    char room[8];
    md.Expiry = 1;
    MQPUT(hconn, hobj, &md, &pmo, 1, "x", &cc, &rc), EXPECT(0);
    md.Expiry = 0;
    MQPUT(hconn, hobj, &md, &pmo, 1, "x", &cc, &rc), EXPECT(2013);
    usleep(150000);
    get(hconn, hobj, room, 8, 0), EXPECT(2033);
    MQDISC(&hconn, &cc, &rc);
}

/* ---- properties ------------------------------------------------------------------------------------------------------------ */

static MQCHARV name_of(const char *text) {
    MQCHARV v = {MQCHARV_DEFAULT};
    v.VSPtr = (void *)text;
    v.VSLength = MQVS_NULL_TERMINATED;
    return v;
}

static void set(MQHMSG handle, const char *name, MQLONG type, MQLONG length, const void *value) {
    MQSMPO smpo = {MQSMPO_DEFAULT};
    MQPD pd = {MQPD_DEFAULT};
    MQCHARV v = name_of(name);
    MQSETMP(MQHC_UNASSOCIATED_HCONN, handle, &smpo, &v, &pd, type, length, (void *)value, &cc, &rc);
}

static MQLONG inquire(MQHMSG handle, const char *name, MQLONG options, MQLONG *type, void *room, MQLONG size) {
    MQIMPO impo = {MQIMPO_DEFAULT};
    MQPD pd = {MQPD_DEFAULT};
    MQCHARV v = name_of(name);
    MQLONG length = 0;
    impo.Options = options;
    MQINQMP(MQHC_UNASSOCIATED_HCONN, handle, &impo, &v, &pd, type, size, room, &length, &cc, &rc);
    return length;
}

static MQHMSG handle(void) {
    MQCMHO cmho = {MQCMHO_DEFAULT};
    MQHMSG made;
    MQCRTMH(MQHC_UNASSOCIATED_HCONN, &cmho, &made, &cc, &rc);
    return made;
}

static void property_names_and_conversions(void) {
    MQHMSG h = handle();
    MQINT32 number = 300, back;
    MQINT64 big = 1LL << 40;
    MQLONG type;
    char room[32];
    set(h, "usr.count", MQTYPE_INT32, 4, &number), EXPECT(0);
    set(h, "big", MQTYPE_INT64, 8, &big), EXPECT(0);
    set(h, "text", MQTYPE_STRING, MQVL_NULL_TERMINATED, "42"), EXPECT(0);
    set(h, "NOT", MQTYPE_STRING, 1, "x"), EXPECT(2442);
    set(h, "between", MQTYPE_STRING, 1, "x"), EXPECT(2442);
    set(h, "a..b", MQTYPE_STRING, 1, "x"), EXPECT(2442);
    set(h, "1st", MQTYPE_STRING, 1, "x"), EXPECT(2442);
    set(h, "JMSFoo", MQTYPE_STRING, 1, "x"), EXPECT(2442);
    set(h, "mqps.a.b", MQTYPE_STRING, 1, "x"), EXPECT(2442);
    set(h, "ok", 3, 1, "x"), EXPECT(2473);
    set(h, "ok", MQTYPE_STRING, -2, "x"), EXPECT(2005);
    set(h, "ok", MQTYPE_INT32, 8, &big), EXPECT(2005);
    set(h, "ok", MQTYPE_INT64, 4, &big), EXPECT(2005);
    set(h, "ok", MQTYPE_BOOLEAN, 1, &number), EXPECT(2005);
    set(h, "ok", MQTYPE_NULL, 1, "x"), EXPECT(2005);
    type = MQTYPE_AS_SET;
    CHECK(inquire(h, "count", 0, &type, &back, 4) == 4 && type == MQTYPE_INT32 && back == 300), EXPECT(0);
    type = MQTYPE_STRING;
    inquire(h, "count", 0, &type, room, sizeof room), EXPECT(2470);
    CHECK(inquire(h, "count", MQIMPO_CONVERT_TYPE, &type, room, sizeof room) == 3 && !memcmp(room, "300", 3)), EXPECT(0);
    type = MQTYPE_INT8;
    inquire(h, "count", MQIMPO_CONVERT_TYPE, &type, room, 1), EXPECT(2472);
    type = MQTYPE_INT64;
    MQINT64 wide = 0;
    inquire(h, "text", MQIMPO_CONVERT_TYPE, &type, &wide, 8), CHECK(wide == 42);
    type = MQTYPE_AS_SET;
    CHECK(inquire(h, "big", 0, &type, room, 4) == 8), EXPECT(2469);
    inquire(h, "nothing", 0, &type, room, 4), EXPECT(2471);
    number = 7;
    set(h, "count", MQTYPE_INT32, 4, &number), EXPECT(0);
    type = MQTYPE_AS_SET;
    inquire(h, "%", MQIMPO_INQ_FIRST, &type, &back, 4), CHECK(back == 7);
    int seen = 1;
    for (; rc == 0; seen++) type = MQTYPE_AS_SET, inquire(h, "usr.%", MQIMPO_INQ_NEXT, &type, room, sizeof room);
    CHECK(seen == 4), EXPECT(2471);
    MQDMHO dmho = {MQDMHO_DEFAULT};
    MQHMSG gone = h;
    MQDLTMH(MQHC_UNASSOCIATED_HCONN, &h, &dmho, &cc, &rc), EXPECT(0);
    CHECK(h == MQHM_UNUSABLE_HMSG);
    type = MQTYPE_AS_SET;
    inquire(gone, "count", 0, &type, room, 4), EXPECT(2460);
}

static void property_names_that_are_not_free(void) {
    MQHMSG h = handle();
    set(h, "usr.a.b", MQTYPE_STRING, 1, "x"), EXPECT(2442);
    set(h, "Root.x", MQTYPE_STRING, 1, "x"), EXPECT(2442);
    set(h, "Root.MQMD.", MQTYPE_STRING, 1, "x"), EXPECT(2442);
    set(h, "Body.x", MQTYPE_STRING, 1, "x"), EXPECT(2442);
    set(h, "Bodywork", MQTYPE_STRING, 1, "x"), EXPECT(0);
    set(h, "", MQTYPE_STRING, 1, "x"), EXPECT(2513);
    set(h, "car", MQTYPE_STRING, 1, "x"), EXPECT(0);
    set(h, "car.door", MQTYPE_STRING, 1, "x"), EXPECT(0);
    set(h, "car.doors", MQTYPE_STRING, 1, "x"), EXPECT(0);
    set(h, "car.door.left", MQTYPE_STRING, 1, "x"), EXPECT(2498);
    set(h, "car.roof.light", MQTYPE_STRING, 1, "x"), EXPECT(0);
    set(h, "car.roof", MQTYPE_STRING, 1, "x"), EXPECT(2498);
}

static void properties_in_other_character_sets_and_encodings(void) {
    MQHMSG h = handle();
    MQSMPO smpo = {MQSMPO_DEFAULT};
    MQIMPO impo = {MQIMPO_DEFAULT};
    MQPD pd = {MQPD_DEFAULT};
    MQCHARV name = name_of("k\xf6");  /* in ISO 8859-1 */
    MQLONG type = MQTYPE_AS_SET, length;
    char room[32];
    name.VSCCSID = smpo.ValueCCSID = 819;
    MQSETMP(MQHC_UNASSOCIATED_HCONN, h, &smpo, &name, &pd, MQTYPE_STRING, 2, "w\xfc", &cc, &rc), EXPECT(0);
    CHECK(inquire(h, "k\xc3\xb6", 0, &type, room, sizeof room) == 3 && !memcmp(room, "w\xc3\xbc", 3)), EXPECT(0);
    impo.Options = MQIMPO_CONVERT_VALUE;
    impo.RequestedCCSID = 1200;
    type = MQTYPE_AS_SET;
    MQINQMP(MQHC_UNASSOCIATED_HCONN, h, &impo, &name, &pd, &type, sizeof room, room, &length, &cc, &rc), EXPECT(0);
    CHECK(length == 4 && !memcmp(room, "w\0\xfc\0", 4) && impo.ReturnedCCSID == 1200);
    impo.RequestedCCSID = 99999;
    MQINQMP(MQHC_UNASSOCIATED_HCONN, h, &impo, &name, &pd, &type, sizeof room, room, &length, &cc, &rc), EXPECT(2466);
    CHECK(cc == MQCC_WARNING && length == 3 && impo.ReturnedCCSID == 1208);
    name = name_of("number");
    smpo.ValueEncoding = impo.RequestedEncoding = MQENC_INTEGER_NORMAL | MQENC_FLOAT_IEEE_NORMAL;
    MQSETMP(MQHC_UNASSOCIATED_HCONN, h, &smpo, &name, &pd, MQTYPE_INT32, 4, "\0\0\1\2", &cc, &rc), EXPECT(0);
    MQINT32 number;
    type = MQTYPE_AS_SET;
    inquire(h, "number", 0, &type, &number, 4), CHECK(number == 258);
    MQINQMP(MQHC_UNASSOCIATED_HCONN, h, &impo, &name, &pd, &type, 4, &number, &length, &cc, &rc), EXPECT(0);
    CHECK(!memcmp(&number, "\0\0\1\2", 4) && impo.ReturnedEncoding == impo.RequestedEncoding);
    MQFLOAT64 large = -2.25e300;
    set(h, "large", MQTYPE_FLOAT64, 8, &large), EXPECT(0);
    type = MQTYPE_FLOAT32;
    inquire(h, "large", MQIMPO_CONVERT_TYPE, &type, room, 4), EXPECT(2470);
    smpo.Options = MQSMPO_APPEND_PROPERTY | MQSMPO_SET_PROP_UNDER_CURSOR;
    MQSETMP(MQHC_UNASSOCIATED_HCONN, h, &smpo, &name, &pd, MQTYPE_NULL, 0, NULL, &cc, &rc), EXPECT(2046);
    smpo.Options = MQSMPO_SET_FIRST;
    pd.Context = 2;
    MQSETMP(MQHC_UNASSOCIATED_HCONN, h, &smpo, &name, &pd, MQTYPE_NULL, 0, NULL, &cc, &rc), EXPECT(2482);
    impo.Options = 1;
    MQINQMP(MQHC_UNASSOCIATED_HCONN, h, &impo, &name, &pd, &type, 4, &number, &length, &cc, &rc), EXPECT(2046);
}

static char *numbered(MQINT32 number) {
    static char name[24];
    snprintf(name, sizeof name, "name_%d", number);
    return name;
}

/* Each is looked for when it is set, so that there is an index; it holds whatever becomes of the list. */
static void properties_by_the_thousand(void) {
    enum { MANY = 20000 };
    MQHMSG h = handle();
    MQINT32 back;
    MQLONG type;
    for (MQINT32 i = 0; i < MANY; i++) set(h, numbered(i), MQTYPE_INT32, 4, &i), EXPECT(0);
    for (MQINT32 i = 0, twice; i < MANY; i++) twice = 2 * i, set(h, numbered(i), MQTYPE_INT32, 4, &twice), EXPECT(0);
    MQDMPO dmpo = {MQDMPO_DEFAULT};
    MQSMPO smpo = {MQSMPO_DEFAULT};
    MQPD pd = {MQPD_DEFAULT};
    MQCHARV name = name_of("name_77");
    MQDLTMP(MQHC_UNASSOCIATED_HCONN, h, &dmpo, &name, &cc, &rc), EXPECT(0);
    type = MQTYPE_AS_SET;
    inquire(h, "name_100", 0, &type, &back, 4), EXPECT(0);
    MQINT32 other = -1;
    smpo.Options = MQSMPO_SET_PROP_BEFORE_CURSOR;
    name = name_of("before");
    MQSETMP(MQHC_UNASSOCIATED_HCONN, h, &smpo, &name, &pd, MQTYPE_INT32, 4, &other, &cc, &rc), EXPECT(0);
    smpo.Options = MQSMPO_SET_PROP_UNDER_CURSOR;
    name = name_of("instead");
    inquire(h, "name_200", 0, &type, &back, 4), EXPECT(0);
    MQSETMP(MQHC_UNASSOCIATED_HCONN, h, &smpo, &name, &pd, MQTYPE_INT32, 4, &other, &cc, &rc), EXPECT(0);
    for (MQINT32 i = 0; i < MANY; i++) {
        bool gone = i == 77 || i == 200;
        type = MQTYPE_AS_SET;
        inquire(h, numbered(i), 0, &type, &back, 4), EXPECT(gone ? 2471 : 0);
        CHECK(gone || back == 2 * i);
    }
    type = MQTYPE_AS_SET;
    inquire(h, "instead", 0, &type, &back, 4), EXPECT(0);
    inquire(h, "name_201", MQIMPO_INQ_NEXT, &type, &back, 4), EXPECT(0);
    inquire(h, "before", 0, &type, &back, 4), EXPECT(0);
    inquire(h, "%", MQIMPO_INQ_NEXT, &type, &back, 4), EXPECT(0);
    CHECK(back == 200);
}

static void property_names_come_back(void) {
    MQHMSG h = handle();
    MQIMPO impo = {MQIMPO_DEFAULT};
    MQPD pd = {MQPD_DEFAULT};
    MQCHARV all = name_of("%");
    MQLONG type = MQTYPE_AS_SET, length;
    char room[8], *name = malloc(5);
    set(h, "mq_usr.colour", MQTYPE_STRING, 3, "red");
    impo.ReturnedName.VSPtr = name;
    impo.ReturnedName.VSBufSize = 5;
    MQINQMP(MQHC_UNASSOCIATED_HCONN, h, &impo, &all, &pd, &type, 8, room, &length, &cc, &rc), EXPECT(2465);
    CHECK(impo.ReturnedName.VSLength == 13);
    impo.ReturnedName.VSPtr = name = realloc(name, 14);
    impo.ReturnedName.VSBufSize = 14;
    MQINQMP(MQHC_UNASSOCIATED_HCONN, h, &impo, &all, &pd, &type, 8, room, &length, &cc, &rc), EXPECT(0);
    CHECK(!strcmp(name, "mq_usr.colour") && length == 3 && !memcmp(impo.TypeString, "string  ", 8));
    free(name);
    MQDMHO dmho = {MQDMHO_DEFAULT};
    MQDLTMH(0, &h, &dmho, &cc, &rc);
}

static void buffers_and_handles(void) {
    MQHMSG h = handle(), copy = handle();
    MQMHBO mhbo = {MQMHBO_DEFAULT};
    MQBMHO bmho = {MQBMHO_DEFAULT};
    MQMD md = {MQMD_DEFAULT};
    MQCHARV all = name_of("%");
    MQLONG length, type = MQTYPE_AS_SET;
    char room[512], value[32];
    double ratio = 0.25;
    set(h, "text", MQTYPE_STRING, MQVL_NULL_TERMINATED, "a<b>&'c'");
    set(h, "ratio", MQTYPE_FLOAT64, 8, &ratio);
    set(h, "raw", MQTYPE_BYTE_STRING, 3, "\x00\xff\x10");
    set(h, "mq_usr.deep.er", MQTYPE_BOOLEAN, 4, &(MQBOOL){1});
    set(h, "empty", MQTYPE_NULL, 0, NULL);
    memcpy(md.Format, "MQSTR   ", 8);
    MQMHBUF(0, h, &mhbo, &all, &md, 8, room, &length, &cc, &rc), EXPECT(2469);
    MQMHBUF(0, h, &mhbo, &all, &md, sizeof room, room, &length, &cc, &rc), EXPECT(0);
    CHECK(!memcmp(md.Format, "MQHRF2  ", 8) && length % 4 == 0);
    memcpy(room + length, "body", 4);
    MQBUFMH(0, copy, &bmho, &md, length + 4, room, &length, &cc, &rc), EXPECT(0);
    CHECK(length == 4 && !memcmp(room, "body", 4) && !memcmp(md.Format, "MQSTR   ", 8));
    CHECK(inquire(copy, "text", 0, &type, value, sizeof value) == 8 && !memcmp(value, "a<b>&'c'", 8));
    type = MQTYPE_AS_SET;
    CHECK(inquire(copy, "raw", 0, &type, value, sizeof value) == 3 && !memcmp(value, "\x00\xff\x10", 3));
    type = MQTYPE_AS_SET, ratio = 0;
    inquire(copy, "ratio", 0, &type, &ratio, 8), CHECK(ratio == 0.25);
    type = MQTYPE_AS_SET;
    CHECK(inquire(copy, "mq_usr.deep.er", 0, &type, value, 4) == 4 && type == MQTYPE_BOOLEAN);
    type = MQTYPE_AS_SET;
    CHECK(inquire(copy, "empty", 0, &type, value, 4) == 0 && type == MQTYPE_NULL), EXPECT(0);
    MQDMHO dmho = {MQDMHO_DEFAULT};
    MQDLTMH(0, &h, &dmho, &cc, &rc);
    MQDLTMH(0, &copy, &dmho, &cc, &rc);
}

static MQLONG header_of(char *room, const char *const folders[], MQLONG ccsid) {
    MQRFH2 header = {MQRFH2_DEFAULT};
    MQLONG at = sizeof header;
    for (; *folders; folders++) {
        MQLONG wide = ccsid == 1200 ? 2 : 1, text = (MQLONG)strlen(*folders) * wide;
        memcpy(room + at, &text, 4);
        memset(room + at + 4, 0, (size_t)text);
        for (MQLONG i = 0; i < text / wide; i++) room[at + 4 + i * wide] = (*folders)[i];
        at += 4 + text;
    }
    header.StrucLength = at;
    header.NameValueCCSID = ccsid;
    memcpy(header.Format, "MQSTR   ", 8);
    memcpy(room, &header, sizeof header);
    return at;
}

static void folders_that_hold_no_properties_stay(void) {
    MQHMSG h = handle();
    MQBMHO bmho = {MQBMHO_DEFAULT};
    MQMHBO mhbo = {MQMHBO_DEFAULT};
    MQMD md = {MQMD_DEFAULT};
    MQCHARV all = name_of("%");
    MQLONG length, type = MQTYPE_AS_SET;
    char room[512], value[32];
    memcpy(md.Format, "MQHRF2  ", 8);
    length = header_of(room, (const char *const[]){"<foo><a>1</a></foo>  ", "<usr><a>5</a></usr>  ", NULL}, 1208);
    memcpy(room + length, "body", 4);
    MQBUFMH(0, h, &bmho, &md, length + 4, room, &length, &cc, &rc), EXPECT(0);
    CHECK(length == 36 + 4 + 21 + 4 && !memcmp(room + 40, "<foo>", 5) && !memcmp(room + length - 4, "body", 4));
    CHECK(((MQRFH2 *)(void *)room)->StrucLength == 36 + 4 + 21 && !memcmp(md.Format, "MQHRF2  ", 8));
    CHECK(inquire(h, "a", 0, &type, value, sizeof value) == 1 && *value == '5');
    inquire(h, "foo.a", 0, &type, value, sizeof value), EXPECT(2471);
    length = header_of(room, (const char *const[]){"<usr><w>wide</w></usr>", NULL}, 1200);
    MQBUFMH(0, h, &bmho, &md, length, room, &length, &cc, &rc), EXPECT(0);
    CHECK(length == 0 && inquire(h, "w", 0, &type, value, sizeof value) == 4 && !memcmp(value, "wide", 4));
    mhbo.Options = MQMHBO_PROPERTIES_IN_MQRFH2 | MQMHBO_DELETE_PROPERTIES;
    MQMHBUF(0, h, &mhbo, &all, &md, 10, room, &length, &cc, &rc), EXPECT(2469);
    CHECK(inquire(h, "w", 0, &type, value, sizeof value) == 4);  /* nothing is deleted by a call that fails */
    mhbo.Options = 8;
    MQMHBUF(0, h, &mhbo, &all, &md, sizeof room, room, &length, &cc, &rc), EXPECT(2046);
    bmho.Options = 8;
    MQBUFMH(0, h, &bmho, &md, 0, room, &length, &cc, &rc), EXPECT(2046);
    MQDMHO dmho = {MQDMHO_DEFAULT};
    MQDLTMH(0, &h, &dmho, &cc, &rc);
}

/* Any bytes as an MQRFH2: refused or read, never more. */
static void broken_headers(void) {
    unsigned state = 12345;
    MQHMSG h = handle();
    MQBMHO bmho = {MQBMHO_DEFAULT};
    const char *folder = "<usr><a dt='i4'>5</a><b xsi:nil='true'></b><c.d>x&lt;</c.d></usr>    ";
    for (int round = 0; round < 20000; round++) {
        size_t size = 40 + strlen(folder);
        char *data = malloc(size);
        MQRFH2 header = {MQRFH2_DEFAULT};
        MQMD md = {MQMD_DEFAULT};
        MQLONG text = (MQLONG)strlen(folder), length;
        header.StrucLength = (MQLONG)size;
        memcpy(md.Format, "MQHRF2  ", 8);
        memcpy(data, &header, 36);
        memcpy(data + 36, &text, 4);
        memcpy(data + 40, folder, strlen(folder));
        for (int change = 0; change < 1 + round % 4; change++) {
            state = state * 1103515245 + 12345;
            data[(state >> 8) % size] = (char)(state >> 24);
        }
        MQBUFMH(0, h, &bmho, &md, (MQLONG)size, data, &length, &cc, &rc);
        CHECK(rc == 0 || rc == 2334);
        free(data);
    }
    MQDMHO dmho = {MQDMHO_DEFAULT};
    MQDLTMH(0, &h, &dmho, &cc, &rc);
}

/* ---- threads, forks ----------------------------------------------------------------------------------------------------------- */

static MQHCONN shared;
static MQHOBJ shared_object;
static MQLONG seen_reason;

static void *use_shared(void *unused) {
    MQLONG c;
    MQCMIT(shared, &c, &seen_reason);
    return unused;
}

static void *wait_shared(void *unused) {
    MQMD md = {MQMD_DEFAULT};
    MQGMO gmo = {MQGMO_DEFAULT};
    MQLONG length, c, r;
    char room[8];
    gmo.Options = MQGMO_WAIT;
    gmo.WaitInterval = 400;
    do MQGET(shared, shared_object, &md, &gmo, 8, room, &length, &c, &r);
    while (r == 2219);
    return unused;
}

static MQLONG reason_elsewhere(void *(*call)(void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, call, NULL);
    pthread_join(thread, NULL);
    return seen_reason;
}

static void who_may_use_a_connection(void) {
    shared = connect_with(MQCNO_HANDLE_SHARE_NONE), EXPECT(0);
    CHECK(reason_elsewhere(use_shared) == 2018);
    MQHCONN same = connect_with(MQCNO_NONE);
    EXPECT(2002), CHECK(same == shared && cc == MQCC_WARNING);
    MQDISC(&shared, &cc, &rc), EXPECT(0);
    MQDISC(&same, &cc, &rc), EXPECT(2018);
    shared = connected();
    CHECK(reason_elsewhere(use_shared) == 0);
    MQDISC(&shared, &cc, &rc);
    shared = connect_with(MQCNO_HANDLE_SHARE_NO_BLOCK);
    shared_object = opened(shared, "NO.BLOCK", ALL);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_shared, NULL);
    do {
        usleep(1000);  /* on one processor the thread would never find the connection free */
        MQCMIT(shared, &cc, &rc);
    } while (rc == 0);
    EXPECT(2219);
    pthread_join(thread, NULL);
    MQCMIT(shared, &cc, &rc), EXPECT(0);
    MQDISC(&shared, &cc, &rc);
}

static void logical_order_needs_version_2(void) {
    MQHCONN hconn = connected();
    MQHOBJ hobj = opened(hconn, "VERSIONS", ALL);
    MQMD first = {MQMD_DEFAULT}, second = {MQMD_DEFAULT};
    MQPMO pmo = {MQPMO_DEFAULT};
    MQGMO gmo = {MQGMO_DEFAULT};
    MQLONG length;
    second.Version = MQMD_VERSION_2;
    pmo.Options = MQPMO_LOGICAL_ORDER;
    MQPUT(hconn, hobj, &first, &pmo, 0, NULL, &cc, &rc), EXPECT(2257);
    gmo.Options = MQGMO_LOGICAL_ORDER;
    MQGET(hconn, hobj, &second, &gmo, 0, NULL, &length, &cc, &rc), EXPECT(2256);
    gmo.Version = MQGMO_VERSION_2;
    MQGET(hconn, hobj, &first, &gmo, 0, NULL, &length, &cc, &rc), EXPECT(2257);
    MQGET(hconn, hobj, &second, &gmo, 0, NULL, &length, &cc, &rc), EXPECT(2033);
    MQDISC(&hconn, &cc, &rc);
}

static void a_forked_child_starts_anew(void) {
    MQHCONN hconn = connected();
    MQHOBJ hobj = opened(hconn, "FORK", ALL);
    put(hconn, hobj, "parent", 0);
    pid_t child = fork();
    if (!child) {
        MQCMIT(hconn, &cc, &rc);
        if (rc != 2018) _exit(1);
        MQHCONN own = connected();
        if (rc) _exit(2);
        MQDISC(&own, &cc, &rc);
        _exit(rc ? 3 : 0);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    char room[8];
    get(hconn, hobj, room, 8, 0), EXPECT(0);
    MQDISC(&hconn, &cc, &rc);
}

static void *producer(void *number) {
    MQHCONN hconn;
    MQHOBJ hobj;
    MQLONG c, r;
    MQCNO cno = {MQCNO_DEFAULT};
    MQOD od = {MQOD_DEFAULT};
    cno.Options = MQCNO_HANDLE_SHARE_BLOCK;
    MQCONNX("QM1", &cno, &hconn, &c, &r);
    strcpy(od.ObjectName, "MANY.THREADS");
    MQOPEN(hconn, &od, MQOO_OUTPUT, &hobj, &c, &r);
    for (int i = 0; i < 500; i++) {
        MQMD md = {MQMD_DEFAULT};
        MQPMO pmo = {MQPMO_DEFAULT};
        pmo.Options = MQPMO_SYNCPOINT;
        MQPUT(hconn, hobj, &md, &pmo, 4, number, &c, &r);
        if (i % 10 == 9) MQCMIT(hconn, &c, &r);
    }
    MQDISC(&hconn, &c, &r);
    return NULL;
}

static void many_threads(void) {
    MQHCONN hconn = connected();
    MQHOBJ hobj = opened(hconn, "MANY.THREADS", ALL);
    pthread_t threads[4];
    MQLONG numbers[4] = {0, 1, 2, 3}, got = 0;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, producer, &numbers[i]);
    char room[8];
    while (got < 2000) {
        MQMD md = {MQMD_DEFAULT};
        MQGMO gmo = {MQGMO_DEFAULT};
        MQLONG length;
        gmo.Options = MQGMO_WAIT;
        gmo.WaitInterval = 5000;
        MQGET(hconn, hobj, &md, &gmo, 8, room, &length, &cc, &rc);
        if (rc) break;
        got++;
    }
    CHECK(got == 2000);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    MQDISC(&hconn, &cc, &rc);
}

/* ---- callbacks ------------------------------------------------------------------------------------------------------------------ */

static _Atomic int delivered, stopped;
static MQLONG disconnected;

static void consume(MQHCONN hconn, PMQVOID md, PMQVOID gmo, PMQVOID data, MQCBC *context) {
    (void)md, (void)gmo, (void)data;
    MQLONG c, r;
    if (context->CallType == MQCBCT_STOP_CALL) stopped++;
    if (context->CallType != MQCBCT_MSG_REMOVED) return;
    if (++delivered % 2 == 0) MQCMIT(hconn, &c, &r);
    MQHCONN itself = hconn;
    MQDISC(&itself, &c, &disconnected);
}

static void callbacks(void) {
    MQHCONN hconn = connected(), other = connected();
    MQHOBJ reading = opened(hconn, "CALLBACKS", ALL), writing = opened(other, "CALLBACKS", ALL);
    MQCBD cbd = {MQCBD_DEFAULT};
    MQCTLO ctlo = {MQCTLO_DEFAULT};
    MQMD md = {MQMD_DEFAULT};
    MQGMO gmo = {MQGMO_DEFAULT};
    delivered = stopped = 0;
    MQCTL(hconn, MQOP_START, &ctlo, &cc, &rc), EXPECT(2446);
    MQCB(hconn, MQOP_REGISTER, &cbd, reading, &md, &gmo, &cc, &rc), EXPECT(2486);
    cbd.CallbackFunction = (MQPTR)consume;
    cbd.Options = MQCBDO_STOP_CALL;
    gmo.Options = MQGMO_SYNCPOINT | MQGMO_WAIT;
    gmo.WaitInterval = MQWI_UNLIMITED;
    MQCB(hconn, MQOP_REGISTER, &cbd, reading, &md, &gmo, &cc, &rc), EXPECT(0);
    MQCTL(hconn, MQOP_START, &ctlo, &cc, &rc), EXPECT(0);
    MQCMIT(hconn, &cc, &rc), EXPECT(2500);
    for (int i = 0; i < 10; i++) put(other, writing, "x", 0);
    for (int i = 0; i < 500 && delivered < 10; i++) usleep(10000);
    CHECK(delivered == 10);
    MQCTL(hconn, MQOP_STOP, &ctlo, &cc, &rc), EXPECT(0);
    CHECK(stopped == 1);
    CHECK(disconnected == 2219);
    MQCMIT(hconn, &cc, &rc), EXPECT(0);
    MQCB(hconn, MQOP_DEREGISTER, &cbd, reading, &md, &gmo, &cc, &rc), EXPECT(0);
    MQCB(hconn, MQOP_DEREGISTER, &cbd, reading, &md, &gmo, &cc, &rc), EXPECT(2448);
    MQCB(hconn, MQOP_REGISTER, &cbd, reading, &md, &gmo, &cc, &rc);
    MQCTL(hconn, MQOP_START, &ctlo, &cc, &rc), EXPECT(0);
    MQDISC(&hconn, &cc, &rc), EXPECT(0);
    MQDISC(&other, &cc, &rc);
}

static _Atomic int told_broken, told_else;

static void on_event(MQHCONN hconn, PMQVOID md, PMQVOID gmo, PMQVOID data, MQCBC *context) {
    (void)hconn, (void)md, (void)gmo, (void)data;
    if (context->CallType == MQCBCT_EVENT_CALL && context->Reason == 2009) told_broken++;
    else told_else++;
}

static void break_sockets(void) {
    for (int fd = 3, domain; fd < 1024; fd++) {
        socklen_t size = sizeof domain;
        if (!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) && domain == AF_UNIX) shutdown(fd, SHUT_RDWR);
    }
}

static double processor_seconds(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

/* The event handler is told once, and nothing turns meanwhile: the program may leave the connection for long. */
static void a_broken_connection_is_told_and_then_quiet(void) {
    MQHCONN hconn = connected();
    MQHOBJ reading = opened(hconn, "CALLBACKS", ALL);
    MQCBD cbd = {MQCBD_DEFAULT}, events = {MQCBD_DEFAULT};
    MQCTLO ctlo = {MQCTLO_DEFAULT};
    MQMD md = {MQMD_DEFAULT};
    MQGMO gmo = {MQGMO_DEFAULT};
    cbd.CallbackFunction = events.CallbackFunction = (MQPTR)on_event;
    events.CallbackType = MQCBT_EVENT_HANDLER;
    gmo.Options = MQGMO_WAIT;
    gmo.WaitInterval = MQWI_UNLIMITED;
    told_broken = told_else = 0;
    MQCB(hconn, MQOP_REGISTER, &events, MQHO_UNUSABLE_HOBJ, NULL, NULL, &cc, &rc), EXPECT(0);
    MQCB(hconn, MQOP_REGISTER, &cbd, reading, &md, &gmo, &cc, &rc), EXPECT(0);
    MQCTL(hconn, MQOP_START, &ctlo, &cc, &rc), EXPECT(0);
    break_sockets();
    for (int i = 0; i < 1000 && !told_broken; i++) usleep(10000);
    double before = processor_seconds();
    usleep(1000000);
    CHECK(processor_seconds() - before < 0.2);
    CHECK(told_broken == 1 && !told_else);
    MQCMIT(hconn, &cc, &rc), EXPECT(2009);
    MQDISC(&hconn, &cc, &rc);
}

static MQLONG control_in_callback;
static _Atomic int too_long;

static void count(MQHCONN hconn, PMQVOID md, PMQVOID gmo, PMQVOID data, MQCBC *context) {
    (void)md, (void)gmo, (void)data;
    MQLONG c;
    if (context->Reason == 2080 && context->State == MQCS_SUSPENDED_USER_ACTION && context->DataLength == 3) too_long++;
    if (context->CallType != MQCBCT_MSG_REMOVED) return;
    if (control_in_callback) {
        MQLONG operation = control_in_callback;
        control_in_callback = 0;
        MQCTLO ctlo = {MQCTLO_DEFAULT};
        MQCTL(hconn, operation, &ctlo, &c, &disconnected);
        if (operation == MQOP_STOP && disconnected == 0) MQCTL(hconn, MQOP_START, &ctlo, &c, &disconnected);
    }
    delivered++;
}

static void wait_until_delivered(int wanted) {
    for (int i = 0; i < 500 && delivered < wanted; i++) usleep(10000);
    CHECK(delivered == wanted);
}

static void a_connection_is_suspended_and_resumed(void) {
    MQHCONN hconn = connected(), other = connected();
    MQHOBJ reading = opened(hconn, "CALLBACKS.SUSPENDED", ALL), writing = opened(other, "CALLBACKS.SUSPENDED", ALL);
    MQCBD cbd = {MQCBD_DEFAULT};
    MQCTLO ctlo = {MQCTLO_DEFAULT};
    MQMD md = {MQMD_DEFAULT};
    MQGMO gmo = {MQGMO_DEFAULT};
    delivered = 0;
    control_in_callback = MQOP_STOP;  /* taken back at once by MQOP_START */
    cbd.CallbackFunction = (MQPTR)count;
    MQCB(hconn, MQOP_REGISTER, &cbd, reading, &md, &gmo, &cc, &rc), EXPECT(0);
    MQCTL(hconn, MQOP_START, &ctlo, &cc, &rc), EXPECT(0);
    MQCB(hconn, MQOP_SUSPEND, &cbd, reading, NULL, NULL, &cc, &rc), EXPECT(2500);
    put(other, writing, "x", 0);
    wait_until_delivered(1);
    CHECK(disconnected == 0);
    MQCTL(hconn, MQOP_SUSPEND, &ctlo, &cc, &rc), EXPECT(0);
    MQCTL(hconn, MQOP_START, &ctlo, &cc, &rc), EXPECT(2449);
    put(other, writing, "x", 0);
    MQCMIT(hconn, &cc, &rc), EXPECT(0);  /* any thread may call meanwhile */
    usleep(150000);
    CHECK(delivered == 1);
    MQCTL(hconn, MQOP_RESUME, &ctlo, &cc, &rc), EXPECT(0);
    wait_until_delivered(2);
    MQCTL(hconn, MQOP_STOP, &ctlo, &cc, &rc), EXPECT(0);
    MQCTL(hconn, MQOP_SUSPEND, &ctlo, &cc, &rc), EXPECT(2449);
    MQCTL(hconn, MQOP_RESUME, &ctlo, &cc, &rc), EXPECT(2449);
    control_in_callback = MQOP_SUSPEND;
    put(other, writing, "x", 0);
    MQCTL(hconn, MQOP_START_WAIT, &ctlo, &cc, &rc), EXPECT(2521);
    CHECK(delivered == 3);
    MQDISC(&hconn, &cc, &rc), EXPECT(0);
    MQDISC(&other, &cc, &rc), EXPECT(0);
}

static void a_message_that_is_too_long_suspends_its_consumer(void) {
    MQHCONN hconn = connected(), other = connected();
    MQHOBJ reading = opened(hconn, "CALLBACKS.SHORT", ALL), writing = opened(other, "CALLBACKS.SHORT", ALL);
    MQCBD cbd = {MQCBD_DEFAULT};
    MQCTLO ctlo = {MQCTLO_DEFAULT};
    MQMD md = {MQMD_DEFAULT};
    MQGMO gmo = {MQGMO_DEFAULT};
    delivered = too_long = 0;
    cbd.CallbackFunction = (MQPTR)count;
    cbd.MaxMsgLength = 1;
    MQCB(hconn, MQOP_REGISTER, &cbd, reading, &md, &gmo, &cc, &rc), EXPECT(0);
    put(other, writing, "xyz", 0);
    MQCTL(hconn, MQOP_START_WAIT, &ctlo, &cc, &rc), EXPECT(2521);
    CHECK(too_long == 1 && delivered == 0);
    cbd.MaxMsgLength = 3;
    MQCB(hconn, MQOP_REGISTER, &cbd, reading, &md, &gmo, &cc, &rc), EXPECT(0);
    MQCTL(hconn, MQOP_START, &ctlo, &cc, &rc), EXPECT(0);
    wait_until_delivered(1);
    MQDISC(&hconn, &cc, &rc), EXPECT(0);
    MQDISC(&other, &cc, &rc), EXPECT(0);
}

static void a_consumer_needs_what_it_consumes_from(void) {
    MQHCONN hconn = connected();
    MQHOBJ output = opened(hconn, "CALLBACKS.REFUSED", MQOO_OUTPUT), input = opened(hconn, "CALLBACKS.REFUSED", MQOO_INPUT_SHARED);
    MQCBD cbd = {MQCBD_DEFAULT};
    MQCTLO ctlo = {MQCTLO_DEFAULT};
    MQMD md = {MQMD_DEFAULT};
    MQGMO gmo = {MQGMO_DEFAULT};
    cbd.CallbackFunction = (MQPTR)count;
    MQCB(hconn, MQOP_REGISTER, &cbd, output, &md, &gmo, &cc, &rc), EXPECT(2037);
    MQCB(hconn, MQOP_REGISTER, &cbd, 999, &md, &gmo, &cc, &rc), EXPECT(2019);
    MQCB(hconn, MQOP_REGISTER | MQOP_DEREGISTER, &cbd, input, &md, &gmo, &cc, &rc), EXPECT(2488);
    MQCB(hconn, MQOP_SUSPEND | MQOP_RESUME, &cbd, input, &md, &gmo, &cc, &rc), EXPECT(2488);
    cbd.Options = 8;
    MQCB(hconn, MQOP_REGISTER, &cbd, input, &md, &gmo, &cc, &rc), EXPECT(2046);
    cbd.Options = MQCBDO_NONE;
    cbd.MaxMsgLength = -2;
    MQCB(hconn, MQOP_REGISTER, &cbd, input, &md, &gmo, &cc, &rc), EXPECT(2485);
    cbd.MaxMsgLength = MQCBD_FULL_MSG_LENGTH;
    gmo.Options = MQGMO_BROWSE_NEXT;
    MQCB(hconn, MQOP_REGISTER, &cbd, input, &md, &gmo, &cc, &rc), EXPECT(2036);
    gmo.Options = MQGMO_WAIT;
    gmo.WaitInterval = -2;
    MQCB(hconn, MQOP_REGISTER, &cbd, input, &md, &gmo, &cc, &rc), EXPECT(2090);
    ctlo.Options = 2;
    MQCTL(hconn, MQOP_STOP, &ctlo, &cc, &rc), EXPECT(2046);
    MQCLOSE(hconn, &input, MQCO_NONE, &cc, &rc), EXPECT(0);
    MQDISC(&hconn, &cc, &rc), EXPECT(0);
}

static void publish_subscribe(void) {
    MQHCONN hconn = connected();
    MQSD sd = {MQSD_DEFAULT};
    MQHOBJ queue = MQHO_NONE, sub, topic;
    MQOD od = {MQOD_DEFAULT};
    char room[8], resolved[64];
    sd.Options = MQSO_CREATE | MQSO_MANAGED;
    sd.ObjectString = name_of("plant/+/t/#");
    sd.ResObjectString.VSPtr = resolved;
    sd.ResObjectString.VSBufSize = sizeof resolved;
    MQSUB(hconn, &sd, &queue, &sub, &cc, &rc), EXPECT(0);
    CHECK(!strcmp(resolved, "plant/+/t/#"));
    od.Version = 4;
    od.ObjectType = MQOT_TOPIC;
    od.ObjectString = name_of("plant/a/t");
    MQOPEN(hconn, &od, MQOO_OUTPUT, &topic, &cc, &rc), EXPECT(0);
    put(hconn, topic, "one", MQPMO_RETAIN), EXPECT(0);
    CHECK(get(hconn, queue, room, 8, 0) == 3 && !memcmp(room, "one", 3));
    MQSRO sro = {MQSRO_DEFAULT};
    sro.Options = 1;
    MQSUBRQ(hconn, sub, MQSR_ACTION_PUBLICATION, &sro, &cc, &rc), EXPECT(2046);
    sro.Options = MQSRO_NONE;
    MQSUBRQ(hconn, sub, MQSR_ACTION_PUBLICATION, &sro, &cc, &rc), EXPECT(0);
    CHECK(sro.NumPubs == 1);
    MQCLOSE(hconn, &queue, MQCO_NONE, &cc, &rc), EXPECT(0);
    put(hconn, topic, "two", MQPMO_RETAIN), EXPECT(0);
    MQCLOSE(hconn, &sub, MQCO_NONE, &cc, &rc), EXPECT(0);
    put(hconn, topic, "three", MQPMO_WARN_IF_NO_SUBS_MATCHED), EXPECT(2550);
    put(hconn, topic, "", MQPMO_RETAIN), EXPECT(0);
    MQDISC(&hconn, &cc, &rc);
}

static void a_resumed_subscription_says_what_it_is(void) {
    MQHCONN hconn = connected();
    MQSD sd = {MQSD_DEFAULT}, again = {MQSD_DEFAULT};
    MQHOBJ queue = MQHO_NONE, sub;
    sd.Options = MQSO_CREATE | MQSO_MANAGED | MQSO_DURABLE;
    sd.ObjectString = name_of("plant/#");
    sd.SubName = again.SubName = name_of("KEPT");
    sd.SubUserData = name_of("told");
    sd.SelectionString = name_of("line > 7");
    sd.SubExpiry = 9000;
    sd.PubPriority = 4;
    sd.Options |= MQSO_SET_IDENTITY_CONTEXT;
    memset(sd.PubAccountingToken, 7, sizeof sd.PubAccountingToken);
    memcpy(sd.PubApplIdentityData, "identity", 8);
    MQSUB(hconn, &sd, &queue, &sub, &cc, &rc), EXPECT(0);
    CHECK(sd.Options == (MQSO_CREATE | MQSO_MANAGED | MQSO_DURABLE | MQSO_SET_IDENTITY_CONTEXT));
    MQCLOSE(hconn, &sub, MQCO_KEEP_SUB, &cc, &rc), EXPECT(0);
    MQCLOSE(hconn, &queue, MQCO_NONE, &cc, &rc), EXPECT(0);
    queue = MQHO_NONE;
    char user_data[8], few[2];
    again.Options = MQSO_RESUME;
    again.SubUserData.VSPtr = user_data;
    again.SubUserData.VSBufSize = sizeof user_data;
    again.SelectionString.VSPtr = few;
    again.SelectionString.VSBufSize = sizeof few;
    MQSUB(hconn, &again, &queue, &sub, &cc, &rc), EXPECT(0);
    CHECK(again.Options == (MQSO_RESUME | MQSO_MANAGED | MQSO_DURABLE));
    CHECK(again.SubExpiry == 9000 && again.PubPriority == 4 && again.SubLevel == 1);
    CHECK(again.SubUserData.VSLength == 4 && !memcmp(user_data, "told", 5));
    CHECK(again.SelectionString.VSLength == 8 && !memcmp(few, "li", 2));
    CHECK(again.PubAccountingToken[31] == 7 && !memcmp(again.PubApplIdentityData, "identity ", 9));
    MQCLOSE(hconn, &sub, MQCO_REMOVE_SUB, &cc, &rc), EXPECT(0);
    MQDISC(&hconn, &cc, &rc);
}

static void a_subscription_is_resumed_with_its_queue(void) {
    MQHCONN hconn = connected();
    MQHOBJ queue = opened(hconn, "PROVIDED", MQOO_INPUT_SHARED), resumed = MQHO_NONE, sub;
    MQSD sd = {MQSD_DEFAULT};
    MQCBD cbd = {MQCBD_DEFAULT};
    MQMD md = {MQMD_DEFAULT};
    MQGMO gmo = {MQGMO_DEFAULT};
    sd.Options = MQSO_CREATE | MQSO_DURABLE;
    sd.ObjectString = name_of("provided");
    sd.SubName = name_of("PROVIDED");
    MQSUB(hconn, &sd, &queue, &sub, &cc, &rc), EXPECT(0);
    MQCLOSE(hconn, &sub, MQCO_KEEP_SUB, &cc, &rc), EXPECT(0);
    sd.Options = MQSO_RESUME | MQSO_DURABLE;
    MQSUB(hconn, &sd, &resumed, &sub, &cc, &rc), EXPECT(0);
    CHECK(resumed > 0 && resumed != queue);
    cbd.CallbackFunction = (MQPTR)count;
    MQCB(hconn, MQOP_REGISTER, &cbd, resumed, &md, &gmo, &cc, &rc), EXPECT(0);
    MQCLOSE(hconn, &sub, MQCO_REMOVE_SUB, &cc, &rc), EXPECT(0);
    MQDISC(&hconn, &cc, &rc);
}

static void the_handle_of_an_earlier_connection_is_no_handle_of_this_one(void) {
    MQHOBJ queue = MQHO_NONE, sub;
    for (int i = 0; i < 2; i++) {  /* a program that connects again with the variables it has */
        MQHCONN hconn = connected();
        MQSD sd = {MQSD_DEFAULT};
        MQCBD cbd = {MQCBD_DEFAULT};
        MQMD md = {MQMD_DEFAULT};
        MQGMO gmo = {MQGMO_DEFAULT};
        sd.Options = MQSO_CREATE | MQSO_MANAGED;
        sd.ObjectString = name_of("again");
        MQSUB(hconn, &sd, &queue, &sub, &cc, &rc), EXPECT(0);
        cbd.CallbackFunction = (MQPTR)count;
        MQCB(hconn, MQOP_REGISTER, &cbd, queue, &md, &gmo, &cc, &rc), EXPECT(0);
        MQDISC(&hconn, &cc, &rc);
    }
}

static void attributes_as_many_as_there_is_room_for(void) {
    MQHCONN hconn = connected();
    MQHOBJ queue = opened(hconn, "ATTRIBUTES", MQOO_INQUIRE);
    MQLONG selectors[] = {MQIA_Q_TYPE, MQCA_Q_NAME, MQCA_Q_DESC, MQCA_BACKOUT_REQ_Q_NAME, MQIA_MAX_Q_DEPTH}, ints[2] = {-7, -7};
    char chars[MQ_Q_NAME_LENGTH + MQ_Q_DESC_LENGTH + 9], room[256];
    memset(chars, '.', sizeof chars);
    MQINQ(hconn, queue, 5, selectors, 2, ints, sizeof chars, chars, &cc, &rc), EXPECT(2008);
    CHECK(cc == MQCC_WARNING && ints[0] == MQQT_LOCAL && ints[1] == 5000);
    CHECK(!memcmp(chars, "ATTRIBUTES  ", 12) && chars[MQ_Q_NAME_LENGTH + MQ_Q_DESC_LENGTH - 1] == ' ');
    CHECK(chars[MQ_Q_NAME_LENGTH + MQ_Q_DESC_LENGTH] == '.');
    MQINQ(hconn, queue, 5, selectors, 2, ints, 0, NULL, &cc, &rc), EXPECT(2008);
    ints[0] = ints[1] = -7;
    MQINQ(hconn, queue, 5, selectors, 1, ints, sizeof room, room, &cc, &rc), EXPECT(2022);
    CHECK(cc == MQCC_WARNING && ints[0] == MQQT_LOCAL && ints[1] == -7);
    MQDISC(&hconn, &cc, &rc);
}

static void a_put_is_answered_at_once_or_later(void) {
    MQHCONN hconn = connected();
    MQHOBJ queue = opened(hconn, "ATTRIBUTES", MQOO_OUTPUT);
    put(hconn, queue, "both", MQPMO_SYNC_RESPONSE | MQPMO_ASYNC_RESPONSE), EXPECT(2046);
    MQDISC(&hconn, &cc, &rc);
}

static void refusals(void) {
    MQHBAG bag = 0;
    mqCreateBag(MQCBO_ADMIN_BAG, &bag, &cc, &rc), EXPECT(2298);
    char source[] = "caf\xc3\xa9", target[8];
    MQLONG length;
    MQXCNVC(0, 0, 1208, 5, source, 819, 8, target, &length, &cc, &rc), EXPECT(0);
    CHECK(length == 4 && target[3] == '\xe9');
    MQXCNVC(0, 0, 1208, 5, source, 99999, 8, target, &length, &cc, &rc), EXPECT(2115);
    MQXCNVC(0, 0, 1208, 5, source, 819, 2, target, &length, &cc, &rc), EXPECT(2120);
}

/* Against a server that answers anything: every call comes back, with whatever outcome. */
static void any_answers(int rounds) {
    for (int i = 0; i < rounds; i++) {
        MQHCONN hconn = connect_with(MQCNO_HANDLE_SHARE_BLOCK);
        MQHOBJ hobj = rc ? MQHO_UNUSABLE_HOBJ : opened(hconn, "ANY", ALL);
        MQLONG selectors[] = {MQIA_CURRENT_Q_DEPTH, MQCA_Q_NAME}, ints[1];
        char chars[48], room[64];
        MQSTS sts = {MQSTS_DEFAULT};
        MQSD sd = {MQSD_DEFAULT};
        MQHOBJ sub;
        if (hconn <= 0) continue;
        hobj = 1;
        put(hconn, hobj, "data", 0);
        get(hconn, hobj, room, sizeof room, MQGMO_NO_WAIT);
        MQINQ(hconn, hobj, 2, selectors, 1, ints, sizeof chars, chars, &cc, &rc);
        MQSTAT(hconn, MQSTAT_TYPE_ASYNC_ERROR, &sts, &cc, &rc);
        MQSUB(hconn, &sd, &hobj, &sub, &cc, &rc);
        MQCMIT(hconn, &cc, &rc);
        MQDISC(&hconn, &cc, &rc);
    }
    puts("survived");
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
#define TEST(name) {#name, name}
    TEST(wrong_structures), TEST(low_versions_stay_within_their_length), TEST(security_by_offset), TEST(truncation),
    TEST(priorities_and_backout), TEST(browse_survives_what_is_taken), TEST(expiry), TEST(property_names_and_conversions),
    TEST(property_names_that_are_not_free),
    TEST(property_names_come_back), TEST(properties_by_the_thousand), TEST(properties_in_other_character_sets_and_encodings), TEST(buffers_and_handles),
    TEST(folders_that_hold_no_properties_stay), TEST(broken_headers), TEST(who_may_use_a_connection),
    TEST(logical_order_needs_version_2), TEST(a_forked_child_starts_anew), TEST(many_threads), TEST(callbacks),
    TEST(a_broken_connection_is_told_and_then_quiet),
    TEST(a_connection_is_suspended_and_resumed), TEST(a_consumer_needs_what_it_consumes_from),
    TEST(a_message_that_is_too_long_suspends_its_consumer), TEST(publish_subscribe),
    TEST(a_resumed_subscription_says_what_it_is), TEST(a_subscription_is_resumed_with_its_queue),
    TEST(the_handle_of_an_earlier_connection_is_no_handle_of_this_one), TEST(attributes_as_many_as_there_is_room_for),
    TEST(a_put_is_answered_at_once_or_later), TEST(refusals),
};

int main(int argc, char **argv) {
    if (argc == 3) return any_answers(atoi(argv[2])), 0;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (argc > 1 && strcmp(argv[1], tests[i].name)) continue;
        running = tests[i].name;
        int before = failures;
        tests[i].run();
        printf("%s %s\n", running, failures == before ? "ok" : "FAILED");
    }
    return failures != 0;
}
