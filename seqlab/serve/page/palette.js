// The colours of numbers, the same as in seqlab/explain/palette.py: steps of equal lightness.

const SEQUENTIAL = ["#f7fbfb", "#c6e2e7", "#91c9da", "#60aece", "#3d90be", "#2a72a7", "#24548b", "#213869", "#192143"]
const DIVERGING = ["#033c77", "#265fa3", "#5084c5", "#83aadc", "#bbd0ec", "#f7f7f7",
  "#e8cbb4", "#d99d75", "#c76e3c", "#a94313", "#7d260f"]
const MISSING = [217, 217, 217]
export const CATEGORICAL = ["var(--accent)", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a8a"]

const rgb = hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16))
const table = stops => Array.from({length: 255}, (_, level) => {
  const place = level / 254 * (stops.length - 1), below = Math.min(Math.floor(place), stops.length - 2)
  const [from, to] = [rgb(stops[below]), rgb(stops[below + 1])]
  return from.map((channel, i) => Math.round(channel + (to[i] - channel) * (place - below)))
})
const TABLES = {sequential: table(SEQUENTIAL), diverging: table(DIVERGING)}

/** A scale for numbers: {kind, low, high}: from 0 to 1 for weights and probabilities, symmetric about 0 otherwise. */
export function scaleOf(values, {share = false} = {}) {
  if (share) return {kind: "sequential", low: 0, high: 1}
  let largest = 0
  for (const value of values) if (Number.isFinite(value)) largest = Math.max(largest, Math.abs(value))
  return {kind: "diverging", low: -(largest || 1), high: largest || 1}
}

/** The colour of a number as [red, green, blue]. */
export function colourOf(value, {kind, low, high}) {
  if (value === null || value === undefined || Number.isNaN(value)) return MISSING
  const share = Math.min(1, Math.max(0, (value - low) / (high - low || 1)))
  return TABLES[kind][Math.round(share * 254)]
}

/** The colour of text that is readable on this colour: dark or white. */
export const inkOn = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 134 ? "#22262b" : "#ffffff"

export const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`
