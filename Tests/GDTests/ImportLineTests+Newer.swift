import BlackBerryDynamics
import BlackBerryDynamics.AuthenticationToken
import BlackBerryDynamics.Launcher
import BlackBerryDynamics.Runtime
import BlackBerryDynamics.SecureCommunication
import BlackBerryDynamics.SecureStore.CoreData
import BlackBerryDynamics.SecureStore.File

func newerLines() -> Bool {
  let gd: GDiOS? = GDiOS.sharedInstance()
  return gd != nil && GDFileManager.default === GDFileManager.default()
}
