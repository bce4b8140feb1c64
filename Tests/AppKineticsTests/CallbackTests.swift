import AppKineticsTesting
import Dispatch
import Foundation
import Locks
import Synchronization
import Testing

@testable import AppKinetics

/// Where an app's own functions are called, and in which order.
@Suite(.timeLimit(.minutes(5)))
struct CallbackTests {
  @Test(arguments: [true, false]) func keepTheOrderOfManyRequests(hasQueue: Bool) async throws {
    try await withTestApps { world in
      let queue = DispatchQueue(label: "app")
      let provider = try await world.app("com.example.provider") { if hasQueue { $0.callbackQueue = queue } }
      let consumer = try await world.app("com.example.consumer")
      let seen = Box<Int64>()
      try provider.services.offer(echo) { request in
        if hasQueue { dispatchPrecondition(condition: .onQueue(queue)) }
        let number = request.params?.integerValue ?? -1
        seen.put(number)
        if number % 100 == 99 { usleep(3000) }
        return .reply(request.params)
      }
      try await provider.services.start()
      try await consumer.services.start()
      try await expectEchoes(2000, to: provider.id, consumer.services)
      #expect(seen.values == (0..<2000).map { Int64($0) })
    }
  }

  /// A handler that blocks its thread until something has come that comes over the same channel.
  @Test func mayWaitForWhatComesOverTheSameChannel() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let consumer = try await world.app("com.example.consumer")
      try provider.services.offer(echo) { request in
        let answer = Guarded<ServiceValue?>(nil)
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

  /// A handler that blocks its thread for one app, until another app was answered.
  @Test func ofOneAppHoldUpNobodyElses() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let mayGo = DispatchSemaphore(value: 0)
      try provider.services.offer(echo) { request in
        if request.sender.text == "com.example.slow" { waitBlocking(mayGo) }
        return .reply(request.params)
      }
      try await provider.services.start()
      let slow = try await world.app("com.example.slow").services
      try await slow.start()
      let held = try await slow.send(ServiceRequest(echo, "echo", params: 1), to: provider.id)
      let second = try await slow.send(ServiceRequest(echo, "echo", params: 2), to: provider.id)
      for name in ["com.example.first", "com.example.second"] {
        let quick = try await world.app(name).services
        try await quick.start()
        try await expectEchoes(100, to: provider.id, quick)
      }
      #expect(held.status != .replied && second.status != .replied)
      mayGo.signal()
      mayGo.signal()
      #expect(try await held.reply()?.params == 1)
      #expect(try await second.reply()?.params == 2)
    }
  }

  /// Where the app named a queue, it is the only one.
  @Test func waitForOneAnotherOnAQueueOfTheApp() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider") {
        $0.callbackQueue = DispatchQueue(label: "app")
      }
      let isCalling = Atomic(false)
      try provider.services.offer(echo) { request in
        let wasCalling = isCalling.exchange(true, ordering: .relaxed)
        #expect(!wasCalling)
        usleep(100)
        isCalling.store(false, ordering: .relaxed)
        return .reply(request.params)
      }
      try await provider.services.start()
      try await withThrowingTaskGroup { group in
        for i in 0..<3 {
          let consumer = try await world.app("com.example.consumer\(i)").services
          try await consumer.start()
          group.addTask { try await expectEchoes(100, to: provider.id, consumer) }
        }
        try await group.waitForAll()
      }
    }
  }
}
