/** The state of a view: named values with undo, which a link restores. */

export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json };

type State = Readonly<Record<string, Json>>;
type Listener = () => void;

export interface SetOptions {
  /** While a handle is dragged: nothing is undone to here, until a change without it follows. */
  readonly live?: boolean;
}

/** Values by path, such as "psf.image.scale"; what is not set has its initial value. */
export class Store {
  private state: State = {};
  private committed: State = {};
  private past: State[] = [];
  private future: State[] = [];
  private readonly listeners = new Map<string, Set<Listener>>();
  private readonly always = new Set<Listener>();

  get(path: string): Json | undefined {
    return Object.hasOwn(this.state, path) ? this.state[path] : undefined;
  }

  /** Sets a value; undefined returns to the initial one. */
  set(path: string, value: Json | undefined, { live = false }: SetOptions = {}): void {
    const changed = !same(this.state[path], value);
    if (changed) {
      const { [path]: _, ...rest } = this.state;
      this.state = value === undefined ? rest : { ...rest, [path]: value };
    }
    const settled = !live && this.settle();
    if (changed) {
      this.notify([path]);
    } else if (settled) {
      // Nothing else is shown, but what was live can be undone from now on.
      this.notifyAll();
    }
  }

  /** Ends a gesture, so that the state can be undone to what it was before; returns whether anything had changed. */
  private settle(): boolean {
    if (same(this.state as Json, this.committed as Json)) {
      return false;
    }
    this.past.push(this.committed);
    if (this.past.length > 200) {
      this.past.shift();
    }
    this.future = [];
    this.committed = this.state;
    return true;
  }

  get canUndo(): boolean {
    return this.past.length > 0;
  }

  get canRedo(): boolean {
    return this.future.length > 0;
  }

  undo(): void {
    this.settle();
    this.move(this.past, this.future);
  }

  redo(): void {
    this.settle();
    this.move(this.future, this.past);
  }

  private move(from: State[], to: State[]): void {
    const next = from.pop();
    if (next !== undefined) {
      to.push(this.committed);
      this.replace(next);
    }
  }

  /** The fragment of an address that restores this state; empty where everything has its initial value. */
  fragment(): string {
    return Object.keys(this.state).length === 0 ? "" : encodeURIComponent(JSON.stringify(this.state));
  }

  /** Takes the state of a fragment, which can be undone if there was one before; one that is not of this viewer changes nothing. */
  restore(fragment: string, { undoable = false } = {}): void {
    let state: unknown = {};
    try {
      state = fragment === "" ? {} : JSON.parse(decodeURIComponent(fragment));
    } catch {
      return;
    }
    if (typeof state === "object" && state !== null && !Array.isArray(state)) {
      if (undoable) {
        this.settle();
        this.past.push(this.committed);
        this.future = [];
      }
      // A null prototype: no key of a link can be one of Object's own.
      this.replace(Object.assign(Object.create(null), state) as State);
    }
  }

  private replace(next: State): void {
    const before = this.state;
    this.state = next;
    this.committed = next;
    const paths = new Set([...Object.keys(before), ...Object.keys(next)]);
    this.notify([...paths].filter((path) => !same(before[path], next[path])));
  }

  /** Calls back when the value of a path changes; returns what ends that. */
  subscribe(path: string, listener: Listener): () => void {
    const all = this.listeners.get(path) ?? new Set();
    this.listeners.set(path, all.add(listener));
    return () => all.delete(listener);
  }

  /** Calls back when anything changes. */
  subscribeAll(listener: Listener): () => void {
    this.always.add(listener);
    return () => this.always.delete(listener);
  }

  private notify(paths: readonly string[]): void {
    for (const path of paths) {
      [...(this.listeners.get(path) ?? [])].forEach((listener) => listener());
    }
    if (paths.length > 0) {
      this.notifyAll();
    }
  }

  private notifyAll(): void {
    [...this.always].forEach((listener) => listener());
  }

  /** The values below a prefix. */
  scope(prefix: string): Scope {
    return new Scope(this, prefix);
  }
}

function same(a: Json | undefined, b: Json | undefined): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

/** The type of values that a cell with this initial value may have: any text for a text, any number for a number. */
type Widened<T extends Json> = T extends string ? string : T extends number ? number : T extends boolean ? boolean : T;

/** The values of one panel or view. */
export class Scope {
  constructor(
    readonly store: Store,
    readonly prefix: string,
  ) {}

  child(name: string): Scope {
    return new Scope(this.store, `${this.prefix}.${name}`);
  }

  /** A value with its initial one; `accepts` rejects values of a link that make no sense, of which the kind is checked already. */
  cell<T extends Json>(key: string, initial: T, accepts: (value: Widened<T>) => boolean = () => true): Cell<Widened<T>> {
    return new Cell<Widened<T>>(this.store, `${this.prefix}.${key}`, initial as Json as Widened<T>, accepts);
  }
}

/** One value of the state. */
export class Cell<T extends Json> {
  constructor(
    private readonly store: Store,
    private readonly path: string,
    readonly initial: T,
    private readonly accepts: (value: T) => boolean,
  ) {}

  get value(): T {
    const stored = this.store.get(this.path);
    return stored !== undefined && isLike(stored, this.initial) && this.accepts(stored as T) ? (stored as T) : this.initial;
  }

  set(value: T, options?: SetOptions): void {
    this.store.set(this.path, same(value, this.initial) ? undefined : value, options);
  }

  reset(): void {
    this.store.set(this.path, undefined);
  }

  /** Calls back when the value changes; returns what ends that. */
  subscribe(listener: (value: T) => void): () => void {
    return this.store.subscribe(this.path, () => listener(this.value));
  }
}

/** Whether a value of a link is of the kind of another; null in a cell stands for a value of any kind. */
function isLike(value: Json, initial: Json): boolean {
  if (initial === null || value === null) {
    return initial === null;
  }
  if (Array.isArray(initial)) {
    return Array.isArray(value) && (initial.length === 0 || value.every((one) => isLike(one, initial[0])));
  }
  return typeof value === typeof initial && !Array.isArray(value) && (typeof value !== "number" || Number.isFinite(value));
}
