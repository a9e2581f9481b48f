// The state of the page is in its address: model, input, pane, and the controls of that pane. A link restores it.

const PAGE_KEYS = ["model", "input", "pane"]

/** Read the address: {model, input, pane, controls}. */
export function read() {
  const params = new URLSearchParams(location.hash.slice(1))
  const state = {controls: {}}
  for (const [key, value] of params) {
    if (PAGE_KEYS.includes(key)) state[key] = value
    else state.controls[key] = value
  }
  return state
}

/** Write the state to the address; with `step`, as a new entry of the history. */
export function write(state, {step = false} = {}) {
  const params = new URLSearchParams()
  for (const key of PAGE_KEYS) if (state[key] !== undefined) params.set(key, state[key])
  for (const [key, value] of Object.entries(state.controls))
    if (value !== "" && value !== undefined) params.set(key, value)
  const hash = `#${params}`
  if (hash === location.hash) return
  history[step ? "pushState" : "replaceState"](null, "", hash)
}
