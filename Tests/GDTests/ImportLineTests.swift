// The only import of this part: Foundation's names, and those of the other parts, come with it.
import BlackBerryDynamics.AppKinetics
import Testing

/// Each import line of existing code compiles. The other lines are in files of their own.
struct ImportLineTests {
  @Test func onePartMakesAllVisible() {
    #expect(GDiOS.sharedInstance() === GDiOS.sharedInstance())
    #expect(Data().isEmpty && GDServicesErrorDomain.isEmpty == false)
    #expect(newerLines() && olderLines())
  }
}
