/* The glyphs. Each is its width, then its strokes, as digit pairs x y on the grid of font.h: plain strokes are straight
 * lines from point to point; after '~' the points are the control polygon of a curve that starts and ends on them;
 * after '*' of a closed one. A single point is a dot. Curves are bent by Chaikin's corner cutting, whose limit is the
 * quadratic B-spline. */
#include "tools/report/font.h"
#include <string.h>

enum { FIRST = ' ', LAST = '~', CUTS = 3, CONTROL_POINTS = 12 };

static const char *const glyphs[LAST - FIRST + 1] = {
    [' ' - FIRST] = "2",
    ['!' - FIRST] = "0 0904 02",
    ['"' - FIRST] = "2 0907 2927",
    ['#' - FIRST] = "4 1219 3239 0444 0747",
    ['$' - FIRST] = "4 ~48390908064543421203 2021 2829",
    ['%' - FIRST] = "5 0259 *07092927 *32345452",
    ['&' - FIRST] = "5 ~521718293948370503123255",
    ['\'' - FIRST] = "0 0907",
    ['(' - FIRST] = "2 ~29070421",
    [')' - FIRST] = "2 ~09272401",
    ['*' - FIRST] = "4 2428 0547 0745",
    ['+' - FIRST] = "4 2327 0545",
    [',' - FIRST] = "1 1200",
    ['-' - FIRST] = "3 0535",
    ['.' - FIRST] = "0 02",
    ['/' - FIRST] = "4 0149",
    ['0' - FIRST] = "4 *02094942",
    ['1' - FIRST] = "2 072922",
    ['2' - FIRST] = "4 ~0709494602 0242",
    ['3' - FIRST] = "4 ~0819494626 ~2646421203",
    ['4' - FIRST] = "4 32390444",
    ['5' - FIRST] = "4 490906 ~0647421203",
    ['6' - FIRST] = "4 ~4839090242461604",
    ['7' - FIRST] = "4 094912",
    ['8' - FIRST] = "4 *06094946 *02064642",
    ['9' - FIRST] = "4 ~0312424909053547",
    [':' - FIRST] = "0 02 06",
    [';' - FIRST] = "1 1200 16",
    ['<' - FIRST] = "4 480542",
    ['=' - FIRST] = "4 0646 0444",
    ['>' - FIRST] = "4 084502",
    ['?' - FIRST] = "4 ~070949462624 22",
    ['@' - FIRST] = "6 ~5342020969644447 *24274744",
    ['A' - FIRST] = "4 022942 1434",
    ['B' - FIRST] = "4 0209 ~092949462606 ~062646422202",
    ['C' - FIRST] = "4 ~483909023243",
    ['D' - FIRST] = "4 0209 ~091949421202",
    ['E' - FIRST] = "4 49090242 0636",
    ['F' - FIRST] = "4 490902 0636",
    ['G' - FIRST] = "4 ~483909023243 434525",
    ['H' - FIRST] = "4 0209 4249 0646",
    ['I' - FIRST] = "0 0209",
    ['J' - FIRST] = "3 ~39320204",
    ['K' - FIRST] = "4 0209 4905 1642",
    ['L' - FIRST] = "3 090232",
    ['M' - FIRST] = "6 0209346962",
    ['N' - FIRST] = "4 02094249",
    ['O' - FIRST] = "5 *02095952",
    ['P' - FIRST] = "4 0209 ~092949452505",
    ['Q' - FIRST] = "5 *02095952 3452",
    ['R' - FIRST] = "4 0209 ~092949452505 2542",
    ['S' - FIRST] = "4 ~48390908064543421203",
    ['T' - FIRST] = "4 0949 2922",
    ['U' - FIRST] = "4 ~090502424549",
    ['V' - FIRST] = "4 092249",
    ['W' - FIRST] = "6 0922374269",
    ['X' - FIRST] = "4 0249 0942",
    ['Y' - FIRST] = "4 092649 2622",
    ['Z' - FIRST] = "4 09490242",
    ['[' - FIRST] = "2 29090121",
    ['\\' - FIRST] = "4 0941",
    [']' - FIRST] = "2 09292101",
    ['^' - FIRST] = "4 072947",
    ['_' - FIRST] = "4 0141",
    ['`' - FIRST] = "1 0918",
    ['a' - FIRST] = "4 *02074742 4742",
    ['b' - FIRST] = "4 0902 *02074742",
    ['c' - FIRST] = "4 ~463707023243",
    ['d' - FIRST] = "4 4942 *02074742",
    ['e' - FIRST] = "4 0545 ~454707023243",
    ['f' - FIRST] = "3 ~39191612 0727",
    ['g' - FIRST] = "4 *02074742 ~4741400001",
    ['h' - FIRST] = "4 0902 ~0517474542",
    ['i' - FIRST] = "0 0207 09",
    ['j' - FIRST] = "2 ~27212000 29",
    ['k' - FIRST] = "3 0902 3704 1532",
    ['l' - FIRST] = "1 ~09030212",
    ['m' - FIRST] = "6 0702 ~0517373532 ~3547676562",
    ['n' - FIRST] = "4 0702 ~0517474542",
    ['o' - FIRST] = "4 *02074742",
    ['p' - FIRST] = "4 0700 *02074742",
    ['q' - FIRST] = "4 4740 *02074742",
    ['r' - FIRST] = "3 0702 ~051737",
    ['s' - FIRST] = "3 ~3627070534321203",
    ['t' - FIRST] = "3 ~19131232 0727",
    ['u' - FIRST] = "4 ~0704023244 4742",
    ['v' - FIRST] = "4 072247",
    ['w' - FIRST] = "6 0722364267",
    ['x' - FIRST] = "4 0247 0742",
    ['y' - FIRST] = "4 0722 472210",
    ['z' - FIRST] = "4 07470242",
    ['{' - FIRST] = "3 ~39191605 ~05141131",
    ['|' - FIRST] = "0 0900",
    ['}' - FIRST] = "3 ~09292635 ~35242101",
    ['~' - FIRST] = "5 ~04164456",
};

static const char *glyph(char letter) {
    return letter >= FIRST && letter <= LAST ? glyphs[letter - FIRST] : glyphs['?' - FIRST];
}

float ups_font_width(char letter) {
    return (float)(glyph(letter)[0] - '0');
}

static ups_font_point between(ups_font_point a, ups_font_point b, float share) {
    return (ups_font_point){a.x + share * (b.x - a.x), a.y + share * (b.y - a.y)};
}

/* One round of corner cutting: every edge keeps its middle half; an open curve keeps its ends. Returns the new count.
 */
static size_t cut_corners(const ups_font_point *in, size_t count, int closed, ups_font_point *out) {
    size_t made = 0;
    if (!closed) out[made++] = in[0];
    for (size_t i = 0; i + (closed ? 0 : 1) < count; i++) {
        const ups_font_point a = in[i], b = in[(i + 1) % count];
        if (closed || i > 0) out[made++] = between(a, b, 0.25f);
        if (closed || i + 2 < count) out[made++] = between(a, b, 0.75f);
    }
    if (!closed) out[made++] = in[count - 1];
    return made;
}

size_t ups_font_stroke(char letter, int index, ups_font_point *points, size_t capacity) {
    const char *text = glyph(letter) + 1;
    for (int skipped = 0; *text == ' '; skipped++) {
        text++;
        if (skipped == index) break;
        text += strcspn(text, " ");
    }
    if (*text == '\0' || *text == ' ') return 0;
    const char kind = *text;
    if (kind == '~' || kind == '*') text++;

    ups_font_point a[UPS_FONT_STROKE_POINTS + 1], b[UPS_FONT_STROKE_POINTS + 1];
    size_t count = 0;
    for (; text[0] && text[0] != ' ' && count < CONTROL_POINTS; text += 2) {
        a[count++] = (ups_font_point){(float)(text[0] - '0'), (float)(text[1] - '0')};
    }
    if (kind == '~' || kind == '*') {
        for (int round = 0; round < CUTS; round++) {
            count = cut_corners(a, count, kind == '*', b);
            memcpy(a, b, count * sizeof(*a));
        }
        if (kind == '*') a[count++] = a[0];
    }
    if (count > capacity) count = capacity;
    memcpy(points, a, count * sizeof(*a));
    return count;
}
