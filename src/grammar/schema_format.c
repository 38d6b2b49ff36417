/* schema_format.c: formats of strings, as patterns. All texts that a pattern matches have the format; unusual
 * texts of the format may not match. A format that JSON Schema does not define is an annotation.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/words.h"
#include "grammar/schema_walk.h"

/* Four digits, but not 0000, which many programs reject. */
#define YEAR "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
#define LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                                 \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"                \
    "02-(0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define HOUR "([01][0-9]|2[0-3])"
#define TIME HOUR ":[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]" HOUR ":[0-5][0-9])"

/* A label of a host's name: at most 32 characters, without two hyphens in a row. */
#define LABEL "[A-Za-z0-9]{1,10}(-[A-Za-z0-9]{1,10}){0,2}"
#define ATOM  "[A-Za-z0-9_+-]{1,20}"

#define OCTET             "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define HEX16             "[0-9a-fA-F]{1,4}"
#define HEX               "[0-9a-fA-F]"
#define V6(before, after) "(" HEX16 ":){1," #before "}(:" HEX16 "){1," #after "}"

#define PCHAR     "([A-Za-z0-9._~!$&'()*+,;=:@-]|%" HEX HEX ")"
#define SEGMENTS  "(/" PCHAR "*)*"
#define QUERY     "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%" HEX HEX ")*)?"
#define FRAGMENT  "(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%" HEX HEX ")*)?"
#define AUTHORITY "//" LABEL "(\\." LABEL "){0,6}(:[1-9][0-9]{0,4})?"
#define URI                                                                                                  \
    "[A-Za-z][A-Za-z0-9+.-]*:(" AUTHORITY SEGMENTS "|//" SEGMENTS "|" PCHAR "+" SEGMENTS ")" QUERY FRAGMENT
/* A first segment without a colon, or a path from the root that does not start with two slashes. */
#define RELATIVE                                                                                             \
    "(/(" PCHAR "+" SEGMENTS ")?|([A-Za-z0-9._~!$&'()*+,;=@-]|%" HEX HEX ")+" SEGMENTS ")?" QUERY FRAGMENT

#define D             "[0-9]{1,4}"
#define DURATION_TIME "T(" D "H(" D "M(" D "S)?)?|" D "M(" D "S)?|" D "S)"
#define DURATION_DATE "(" D "Y(" D "M(" D "D)?)?|" D "M(" D "D)?|" D "D)"

#define EMAIL         "^" ATOM "(\\." ATOM "){0,2}@(" LABEL "\\.){1,4}[A-Za-z]{2,20}$"
#define HOSTNAME      "^" LABEL "(\\." LABEL "){0,6}$"
#define POINTER       "(/([^/~]|~[01])*)*"
#define ANY_URI       "^" URI "$"
#define ANY_REFERENCE "^(" URI "|" RELATIVE ")$"

/* All that JSON Schema defines. A URI is an IRI, and so on. */
static const struct {
    const char *name, *pattern; /* NULL: a grammar cannot enforce it */
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration", "^P(" D "W|" DURATION_DATE "(" DURATION_TIME ")?|" DURATION_TIME ")$"},
    {"email", EMAIL},
    {"idn-email", EMAIL},
    {"hostname", HOSTNAME},
    {"idn-hostname", HOSTNAME},
    {"ipv4", "^(" OCTET "\\.){3}" OCTET "$"},
    {"ipv6", "^((" HEX16 ":){7}" HEX16 "|(" HEX16 ":){1,7}:|::(" HEX16 ":){0,5}" HEX16
             "|::|" V6(6, 1) "|" V6(5, 2) "|" V6(4, 3) "|" V6(3, 4) "|" V6(2, 5) "|" V6(1, 6) ")$"},
    {"uri", ANY_URI},
    {"iri", ANY_URI},
    {"uri-reference", ANY_REFERENCE},
    {"iri-reference", ANY_REFERENCE},
    {"uri-template", ANY_REFERENCE},
    {"uuid", "^" HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}$"},
    {"json-pointer", "^" POINTER "$"},
    {"relative-json-pointer", "^(0|[1-9][0-9]{0,8})(#|" POINTER ")$"},
    {"regex", NULL},
};

bool weir__schema_format(weir__schema_walk *w, const json_t *format, const char **pattern)
{
    const char *name = json_string_value(format), *nearest = NULL;
    *pattern = NULL;
    if (format == NULL) return true;
    if (name == NULL) return weir__schema_refuse_finally(w, "format", "it must be a string") != NULL;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            *pattern = formats[i].pattern;
            return *pattern != NULL ||
                   weir__schema_refuse(w, "format", "a grammar cannot enforce '%s'", name) != NULL;
        }
        if (strlen(formats[i].name) > 4 && weir__words_near(name, formats[i].name) >= 0)
            nearest = formats[i].name;
    }
    return nearest == NULL ||
           weir__schema_refuse(w, "format", "'%.40s' is unknown; write '%s'", name, nearest) != NULL;
}
