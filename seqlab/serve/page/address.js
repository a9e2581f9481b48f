// The state of the page is its address: model, input, pane, and the controls of that pane. A link shows the same.

const OWN = ["model", "input", "pane"]

/** What the address says: {model, input, pane, controls}. */
export function read() {
  const said = new URLSearchParams(location.hash.slice(1))
  const state = {controls: {}}
  for (const [key, value] of said) {
    if (OWN.includes(key)) state[key] = value
    else state.controls[key] = value
  }
  return state
}

/** Write the state; a step that a person would want to go back from is one of the history. */
export function write(state, {step = false} = {}) {
  const said = new URLSearchParams()
  for (const key of OWN) if (state[key] !== undefined) said.set(key, state[key])
  for (const [key, value] of Object.entries(state.controls)) if (value !== "" && value !== undefined) said.set(key,
    value)
  const hash = `#${said}`
  if (hash === location.hash) return
  history[step ? "pushState" : "replaceState"](null, "", hash)
}
