// The server: one function for each route. What it refuses is a `Refusal` with a sentence and a hint.

export class Refusal extends Error {
  constructor(sentence, hint, status) {
    super(sentence)
    this.hint = hint
    this.status = status
  }
}

const KEPT = 40 // answers that need not be asked for again
const answers = new Map()

export const models = () => json("/v1/models")
export const runs = (model, after, signal) => json(`/v1/runs/${encodeURIComponent(model)}?after=${after}`, null, signal)
export const predict = (body, signal) => remembered("/v1/predict", body, signal)
export const next = (body, signal) => remembered("/v1/next", body, signal)

/** A view's numbers and pictures. */
export const explain = (view, body, signal) => remembered(`/v1/explain/${view}`, body, signal)

/** A view as a file: html, svg, png or trace. */
export async function file(view, body, form, signal) {
  const answer = await ask(`/v1/explain/${view}?form=${form}`, body, signal)
  return form === "trace" ? answer.arrayBuffer() : answer.blob()
}

/** Ask once: the same question has the same answer as long as the page is open. Who no longer waits leaves, and the
 *  last to leave calls the question off. */
async function remembered(path, body, signal) {
  signal?.throwIfAborted()
  const key = `${path} ${JSON.stringify(body)}`
  const asked = answers.get(key) ?? question(path, body, key)
  asked.waiting++
  return new Promise((resolve, reject) => {
    signal?.addEventListener("abort", () => {
      reject(signal.reason)
      if (--asked.waiting === 0 && !asked.answered) asked.callOff()
    })
    asked.answer.then(resolve, reject)
  })
}

function question(path, body, key) {
  const abort = new AbortController(), asked = {waiting: 0, answered: false, answer: json(path, body, abort.signal)}
  const forget = () => { if (answers.get(key) === asked) answers.delete(key) }
  asked.callOff = () => { forget(); abort.abort() }
  asked.answer.then(() => { asked.answered = true }, forget)
  answers.set(key, asked)
  if (answers.size > KEPT) answers.delete(answers.keys().next().value)
  return asked
}

async function json(path, body, signal) {
  return (await ask(path, body, signal)).json()
}

async function ask(path, body, signal) {
  const headers = {}
  const token = sessionStorage.getItem("token")
  if (token) headers.Authorization = `Bearer ${token}`
  if (body) headers["Content-Type"] = "application/json"
  let answer
  try {
    answer = await fetch(path, {method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal})
  } catch (error) {
    if (error.name === "AbortError") throw error
    throw new Refusal("the server does not answer", "is `seqlab serve` still running?", 0)
  }
  if (answer.ok) return answer
  const said = await answer.json().catch(() => ({}))
  throw new Refusal(said.error ?? `the server answered ${answer.status}`, said.hint ?? "", answer.status)
}
