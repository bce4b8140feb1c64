import Dispatch
import Foundation
import Synchronization
import Testing

@testable import AppKinetics
@testable import LocalTransport

/// Where an app's own functions are called, and in which order.
@Suite(.timeLimit(.minutes(5)))
struct CallbackTests {
  /// One after another, and those of each thread in its order, whoever calls.
  @Test(arguments: [true, false]) func areMadeOneAfterAnother(hasQueue: Bool) async throws {
    let queue = DispatchQueue(label: "app")
    let callbacks = Callbacks(hasQueue ? queue : nil, LaneExecutor())
    let (threads, count) = (4, 2000)
    let isCalling = Atomic(false)
    let seen = Mutex([[Int]](repeating: [], count: threads))
    let (ends, continuation) = AsyncStream<Void>.makeStream()
    for thread in 0..<threads {
      Thread.detachNewThread {
        for i in 0..<count {
          callbacks.add {
            if hasQueue { dispatchPrecondition(condition: .onQueue(queue)) }
            let wasCalling = isCalling.exchange(true, ordering: .relaxed)
            #expect(!wasCalling)
            seen.withLock { $0[thread].append(i) }
            if i % 500 == 0 { usleep(1000) }
            isCalling.store(false, ordering: .relaxed)
            if i == count - 1 { continuation.yield() }
          }
        }
      }
    }
    var iterator = ends.makeAsyncIterator()
    for _ in 0..<threads { _ = await iterator.next() }
    #expect(seen.withLock { $0 } == Array(repeating: Array(0..<count), count: threads))
  }

  /// Where the request came, while they are quick; a slow one is called elsewhere after the first, and the order is the same.
  @Test func areMadeWhereRequestsComeWhileTheyAreQuick() async throws {
    try await withWorld { world in
      let seen = Box<Int64>()
      let places = Box<Bool>()
      let (provider, consumer) = try await world.echoPair { request in
        let number = request.params?.integerValue ?? -1
        seen.put(number)
        places.put(isOnLaneThread())
        if (200..<230).contains(number) { usleep(2000) }
        return .reply(request.params)
      }
      var count = 0
      // On a machine that has other things to do it takes a while until all of sixteen were quick.
      while count < 230 || places.values.last != true {
        let params = ServiceValue.integer(Int64(count))
        #expect(
          try await consumer.call(ServiceRequest(echo, "echo", params: params), to: provider.id)?.params
            == params)
        count += 1
      }
      #expect(seen.values == (0..<count).map { Int64($0) })
      #expect(places.values[0..<200].contains(true))
      #expect(!places.values[201..<230].contains(true))
    }
  }

  @Test func keepTheOrderOfManyRequests() async throws {
    try await withWorld { world in
      let seen = Box<Int64>()
      let (provider, consumer) = try await world.echoPair { request in
        let number = request.params?.integerValue ?? -1
        seen.put(number)
        if number % 100 == 99 { usleep(3000) }
        return .reply(request.params)
      }
      try await expectEchoes(2000, to: provider.id, consumer)
      #expect(seen.values == (0..<2000).map { Int64($0) })
    }
  }

  /// A handler that blocks its thread until something has come that comes over the same channel.
  @Test func mayWaitForWhatComesOverTheSameChannel() async throws {
    try await withWorld { world in
      let provider = try world.app("com.example.provider")
      let consumer = try world.app("com.example.consumer")
      try provider.services.offer(echo) { request in
        let answer = Mutex<ServiceValue?>(nil)
        let isThere = DispatchSemaphore(value: 0)
        Task {
          let reply = try? await provider.services.call(
            ServiceRequest(echo, "echo", params: request.params), to: consumer.id)
          answer.withLock { $0 = reply?.params }
          isThere.signal()
        }
        waitBlocking(isThere)
        return .reply(answer.withLock { $0 })
      }
      try consumer.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      try await consumer.services.start()
      for i in 0..<30 {
        let params = ServiceValue.integer(Int64(i))
        let reply = try await consumer.services.call(
          ServiceRequest(echo, "echo", params: params), to: provider.id)
        #expect(reply?.params == params)
      }
    }
  }

  /// Calls that come together, of which one takes long: those behind it go on elsewhere, before what came meanwhile.
  @Test func keepTheirOrderWhenTheyGoOnElsewhere() async throws {
    try await withWorld { world in
      let provider = try world.app("com.example.provider")
      let callbacks = provider.services.runtime.callbacks
      let count = 20
      let seen = Mutex<[Int]>([])
      let wasOnLaneThread = Mutex(false)
      let (ends, continuation) = AsyncStream<Void>.makeStream()
      let call: @Sendable (Int) -> Void = { i in
        seen.withLock { $0.append(i) }
        if i == 3 {
          if isOnLaneThread() { wasOnLaneThread.withLock { $0 = true } }
          usleep(1000)
        }
        if i == 2 * count - 1 { continuation.yield() }
      }
      try provider.services.offer(echo) { _ in
        // They are made together, behind this one.
        for i in 0..<count {
          callbacks.add {
            call(i)
            if i == 3 { for more in count..<2 * count { callbacks.add { call(more) } } }
          }
        }
        return .noReply
      }
      try await provider.services.start()
      let consumer = try world.app("com.example.consumer").services
      try await consumer.start()
      var all = ends.makeAsyncIterator()
      while !wasOnLaneThread.withLock({ $0 }) {
        seen.withLock { $0 = [] }
        try await consumer.call(ServiceRequest(echo, "tell"), to: provider.id)
        _ = await all.next()
        #expect(seen.withLock { $0 } == Array(0..<2 * count))
      }
    }
  }

  /// Tasks of the services' own threads may wait for one another.
  @Test func mayBeWaitedForByTasksThatBlock() async throws {
    try await withWorld { world in
      let (provider, consumer) = try await world.echoPair()
      try await withTaskExecutorPreference(consumer.taskExecutor) {
        for _ in 0..<20 {
          let isThere = DispatchSemaphore(value: 0)
          try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { waitBlocking(isThere) }
            group.addTask {
              try await consumer.call(ServiceRequest(echo, "echo", params: 1), to: provider.id)
              isThere.signal()
            }
            try await group.waitForAll()
          }
        }
      }
    }
  }

  /// The same for a task that runs where replies come.
  @Test func mayBeHeldUpByATaskThatBlocks() async throws {
    try await withWorld { world in
      let (provider, consumer) = try await world.echoPair()
      try await withTaskExecutorPreference(consumer.taskExecutor) {
        for i in 0..<10 {
          let reply = try await consumer.call(ServiceRequest(echo, "echo", params: 1), to: provider.id)
          #expect(reply?.params == 1)
          let isThere = DispatchSemaphore(value: 0)
          Task.detached {
            let reply = try await consumer.call(
              ServiceRequest(echo, "echo", params: .integer(Int64(i))), to: provider.id)
            #expect(reply?.params == .integer(Int64(i)))
            isThere.signal()
          }
          waitBlocking(isThere)
        }
      }
    }
  }
}

/// Whether this thread reads a lane.
func isOnLaneThread() -> Bool { LaneThread.current.currentValue != nil }
