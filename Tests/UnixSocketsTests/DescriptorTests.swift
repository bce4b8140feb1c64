import CPosix
import Foundation
import Testing
import UnixSockets

struct DescriptorTests {
  @Test func closesAtItsEnd() throws {
    let pipe = try Pipe()
    let file = try #require(OpenFile(pipe.readEnd.number))
    #expect(try file.descriptorCount == 2)  // a pipe is one file with two ends
    do {
      let third = try pipe.readEnd.duplicate()
      #expect(OpenFile(third.number) == file)
      #expect(try file.descriptorCount == 3)
    }
    #expect(try file.descriptorCount == 2)
  }

  @Test func takenNumberStaysOpen() throws {
    let pipe = try Pipe()
    let number = try pipe.readEnd.duplicate().take()
    #expect(OpenFile(number) == OpenFile(pipe.readEnd.number))
    #expect(close(number) == 0)
  }

  @Test func adoptedAndDuplicatedAreClosedByExec() throws {
    var ends: [Int32] = [-1, -1]
    try #require(pipe(&ends) == 0)
    #expect(!isClosedOnExec(ends[0]))
    let first = try Descriptor(adopting: ends[0])
    let second = try Descriptor(adopting: ends[1])
    #expect(isClosedOnExec(first.number))
    #expect(isClosedOnExec(second.number))
    let third = try first.duplicate()
    #expect(isClosedOnExec(third.number))
  }

  @Test func refusesANumberThatIsNotOpen() {
    #expect(throws: SocketError.callFailed(operation: "fcntl", path: nil, errno: EBADF)) {
      _ = try Descriptor(adopting: -1)
    }
  }

  @Test func listHandsOutInOrderAndClosesTheRest() throws {
    let one = try Pipe()
    let two = try Pipe()
    let (first, second) = (
      try #require(OpenFile(one.readEnd.number)), try #require(OpenFile(two.readEnd.number))
    )
    do {
      var list = DescriptorList()
      list.append(try one.readEnd.duplicate())
      list.append(try two.readEnd.duplicate())
      #expect(list.count == 2)
      let popped = list.popFirst()
      #expect(popped.file == first)
      #expect(try second.descriptorCount == 3)
    }
    #expect(try first.descriptorCount == 2)
    #expect(try second.descriptorCount == 2)
    var empty = DescriptorList()
    let isEmpty = empty.isEmpty
    #expect(isEmpty)
    let nothing = empty.popFirst()
    #expect(nothing.file == nil)
  }

  @Test func limitIsRaisedToTheHardOne() throws {
    let peer = try PeerProcess("raise limit", "", "64")
    #expect(try peer.line() == "soft 64")
    #expect(try peer.line() == "raised")
    #expect(try peer.line() == "in force")
    let here = try DescriptorLimit.current()
    #expect(here.soft > 64)
    #expect(here.soft <= here.hard)
  }
}
