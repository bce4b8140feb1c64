import CSodium
import Locks
import Synchronization

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Guarded memory for keys that go together, and the gate in front of them.
///
/// Whoever uses a key of the pool is inside of the gate meanwhile, for a computation alone: to derive, seal, open or compare. Inside there is no
/// system call, no lock that is held over one, and no closure of a caller of this package. So ``shut()`` waits for microseconds. After it there
/// is no key of the pool any more, also where keys and ciphers are still referenced: who uses one gets ``CryptoError/keysWiped``.
///
///     let pool = KeyPool()
///     let key = try SecretKey.random(in: pool)
///     pool.shut()
///     // Throws `keysWiped`.
///     try key.withUnsafeBytes { KeyedHash.compute(count: 32, key: $0, data: []) }
public final class KeyPool: Sendable {
  /// The process's own, which is never shut.
  public static let shared = KeyPool(isShared: true)
  static let keysPerAllocation = 512
  static let allocationCountMax = 1024
  private static let allocationByteCount = keysPerAllocation * SecretKey.byteCount

  private struct State: @unchecked Sendable {  // invariant: reached only under the mutex
    var allocations: [UnsafeMutableRawPointer] = []
    var free: [UnsafeMutableRawPointer] = []
    var ciphers: [ObjectIdentifier: WeakCipher] = [:]
    var isWiped = false
  }
  private struct WeakCipher {
    weak var cipher: SecretStreamCipher?
  }
  private let state = Guarded(State())
  @usableFromInline let isShared: Bool
  @usableFromInline let gate = Gate()

  public convenience init() { self.init(isShared: false) }

  private init(isShared: Bool) {
    requireSodium()
    self.isShared = isShared
  }

  deinit { state.withLock { for memory in $0.allocations { sodium_free(memory) } } }

  // MARK: Keys

  /// Throws ``CryptoError/secretMemoryExhausted(byteCount:)`` and ``CryptoError/keysWiped``.
  func take() throws(CryptoError) -> UnsafeMutableRawBufferPointer {
    let slot = try state.withLock { state throws(CryptoError) -> UnsafeMutableRawBufferPointer? in
      if state.isWiped { throw .keysWiped }
      if state.free.isEmpty {
        guard state.allocations.count < Self.allocationCountMax,
          let base = sodium_malloc(Self.allocationByteCount)
        else { return nil }
        state.allocations.append(base)
        state.free = (0..<Self.keysPerAllocation).map { base + $0 * SecretKey.byteCount }
      }
      return UnsafeMutableRawBufferPointer(start: state.free.removeLast(), count: SecretKey.byteCount)
    }
    guard let slot else { throw .secretMemoryExhausted(byteCount: SecretKey.byteCount) }
    return slot
  }

  func giveBack(_ slot: UnsafeMutableRawBufferPointer) {
    state.withLock { state in
      // Wiped memory cannot be reached, and nobody else gets a place in it.
      guard !state.isWiped else { return }
      sodium_memzero(slot.baseAddress, slot.count)
      state.free.append(slot.baseAddress!)  // a slot from `take` has an address
    }
  }

  // MARK: The gate

  /// Calls `body` inside of the gate, and throws `gone` behind a shut one. Inside of it the pool may be used again.
  @inlinable @inline(__always)
  public func inside<R: ~Copyable, E: Error>(
    else gone: @autoclosure () -> E, _ body: () throws(E) -> R
  ) throws(E) -> R {
    if isShared { return try body() }
    let place = gate.enter()
    guard place >= 0 else { throw gone() }
    defer { gate.leave(place) }
    return try body()
  }

  public var isShut: Bool { gate.isShut }

  /// A cipher that is used with keys of this pool: what it keeps of the last one goes with them.
  func add(_ cipher: SecretStreamCipher) {
    guard !isShared else { return }
    state.withLock { $0.ciphers[ObjectIdentifier(cipher)] = WeakCipher(cipher: cipher) }
  }

  /// The cipher is about to go.
  func remove(_ cipher: SecretStreamCipher) {
    guard !isShared else { return }
    state.withLock { _ = $0.ciphers.removeValue(forKey: ObjectIdentifier(cipher)) }
  }

  /// Shuts the gate, waits until nobody is inside, and wipes all keys of the pool and what its ciphers have kept of them. When this
  /// returns they are gone; the second call does nothing, and returns then, too. A thread that stays inside of the gate for more than a
  /// second ends the process: nobody may be told that keys are gone that are in use.
  public func shut() {
    precondition(!isShared, "the process's own keys are always there")
    gate.shut()
    let ciphers = state.withLock { state -> [SecretStreamCipher] in
      guard !state.isWiped else { return [] }
      state.isWiped = true
      for memory in state.allocations {
        sodium_memzero(memory, Self.allocationByteCount)
        // Who has missed the gate ends the process, and never seals under zeros.
        _ = sodium_mprotect_noaccess(memory)
      }
      state.free = []
      // Nobody uses them with a key any more. Their last references must not go under the lock.
      let ciphers = state.ciphers.values.compactMap(\.cipher)
      for cipher in ciphers { cipher.forgetKeys() }
      state.ciphers = [:]
      return ciphers
    }
    withExtendedLifetime(ciphers) {}
  }
}

/// Counts the threads inside, in 64 places so that they do not wait for each other's.
@usableFromInline
final class Gate: Sendable {
  private static let placeCount = 64
  /// A processor fetches two lines of 64 bytes at once.
  private static let stride = 16
  // Invariant: allocated and initialized once, and only reached through atomics.
  private nonisolated(unsafe) let counts: UnsafeMutablePointer<Atomic<Int>>
  private let flag = Atomic<Bool>(false)

  init() {
    counts = .allocate(capacity: Self.placeCount * Self.stride)
    for i in 0..<(Self.placeCount * Self.stride) { (counts + i).initialize(to: Atomic(0)) }
  }

  deinit {
    counts.deinitialize(count: Self.placeCount * Self.stride)
    counts.deallocate()
  }

  var isShut: Bool { flag.load(ordering: .sequentiallyConsistent) }

  /// Negative when it is shut.
  @usableFromInline
  func enter() -> Int {
    #if canImport(Darwin)
      let thread = UInt(bitPattern: pthread_self())
    #else
      let thread = UInt(pthread_self())
    #endif
    // Threads' addresses are multiples of pages; a multiplication spreads them.
    let place = Int((thread &* 0x9E37_79B9_7F4A_7C15) >> 58) * Self.stride
    // First the count, then the flag; the closer has it the other way round, so that one of the two sees the other.
    counts[place].wrappingAdd(1, ordering: .sequentiallyConsistent)
    guard !flag.load(ordering: .sequentiallyConsistent) else {
      leave(place)
      return -1
    }
    return place
  }

  @usableFromInline
  func leave(_ place: Int) { counts[place].wrappingSubtract(1, ordering: .sequentiallyConsistent) }

  /// Returns when nobody is inside.
  func shut() {
    flag.store(true, ordering: .sequentiallyConsistent)
    // What the whole process was stopped for, or the machine asleep, is nobody's time inside.
    let lookMax = Duration.milliseconds(10)
    var (waited, last) = (Duration.zero, SuspendingClock.now)
    while (0..<Self.placeCount).contains(where: {
      counts[$0 * Self.stride].load(ordering: .sequentiallyConsistent) != 0
    }) {
      sched_yield()
      let now = SuspendingClock.now
      waited += min(last.duration(to: now), lookMax)
      last = now
      guard waited < .seconds(1) else { fatalError("keys that have to go are still in use after a second") }
    }
  }
}
