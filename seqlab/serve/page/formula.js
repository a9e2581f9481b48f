// One number with its equation and the actual values.
import {element, formatNumber} from "./element.js"
import {grid, thumbnail} from "./matrix.js"
import {scaleOf} from "./palette.js"

const NUM_TERMS = 4 // shown before the dots

/** The view `number` as a card: the formula, its sums term by term, and the result. */
export function formula(account) {
  return element("div", {class: "formula"},
    element("p", {class: "law"}, element("span", {class: "badge",
      title: "The number of the equation in the lectures"}, account.equation || "value"), " ",
      element("span", {class: "math"}, account.formula)),
    ...account.products.map(product),
    ...account.lines.map(line => element("p", {class: "math"}, line)),
    element("p", {class: "math outcome"}, `${account.name} = `,
      element("b", {"data-value": String(account.value)}, formatNumber(account.value, 5))))
}

/** A sum of products: both vectors as strips, the first terms as numbers, and a table of all terms. */
function product({what, left, right, a, b, sum}) {
  const terms = a.map((value, k) => value * b[k])
  const writeTerm = k => `${formatNumber(a[k])} × ${formatNumber(b[k])}`
  const first = a.slice(0, NUM_TERMS).map((_, k) => writeTerm(k))
  const few = a.length <= NUM_TERMS + 1 ? a.map((_, k) => writeTerm(k)) : [...first, "…", writeTerm(a.length - 1)]
  const strip = (name, values) => element("div", {class: "strip"}, element("small", {}, name),
    thumbnail(grid([values]), scaleOf(values), {width: Math.min(260, Math.max(40, 12 * values.length)), height: 14,
      label: `${name}: ${values.length} numbers`}))
  return element("div", {class: "product"}, strip(left, a), strip(right, b), strip("product", terms),
    element("p", {class: "math"}, `${what} = ${few.join(" + ")} = `, element("b", {}, formatNumber(sum, 5))),
    element("details", {}, element("summary", {}, `all ${a.length} terms`),
      element("div", {class: "wide"}, element("table", {class: "terms"},
        element("tr", {}, ...["", left, right, "product"].map(name => element("th", {scope: "col"}, name))),
        ...terms.map((term, k) => element("tr", {}, element("th", {scope: "row"}, String(k)),
          ...[a[k], b[k], term].map(value => element("td", {}, formatNumber(value, 4)))))))))
}
